package main

import (
	"context"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rights returns what the service account must be allowed, as deploy/chart/base/rbac.yaml grants it.
func (o *options) rights() (rights []authorizationv1.ResourceAttributes) {
	add := func(r authorizationv1.ResourceAttributes, verbs ...string) {
		for _, r.Verb = range verbs {
			rights = append(rights, r)
		}
	}
	add(authorizationv1.ResourceAttributes{Resource: "nodes"}, "get", "list", "watch", "patch")
	add(authorizationv1.ResourceAttributes{Resource: "events", Namespace: metav1.NamespaceDefault}, "create", "patch")
	add(authorizationv1.ResourceAttributes{Group: "networking.k8s.io", Resource: "servicecidrs"}, "list", "watch")
	if o.leaderElect {
		lease := authorizationv1.ResourceAttributes{Group: "coordination.k8s.io", Resource: "leases", Namespace: o.leaseNamespace}
		add(lease, "create")
		lease.Name = o.leaseName
		add(lease, "get", "update")
	}
	if o.byLabels() {
		for _, r := range entryResources {
			add(authorizationv1.ResourceAttributes{Group: r.Group, Resource: r.Resource}, "list", "watch", "patch")
			add(authorizationv1.ResourceAttributes{Group: r.Group, Resource: r.Resource, Subresource: "status"}, "patch")
		}
	}
	return rights
}

// rightsPeriod is the pause between two questions for all rights.
const rightsPeriod = time.Minute

// watchRights keeps a metric of the rights that the service account lacks until ctx ends. A
// right may be missing long before the first request that needs it, and such requests are too rare for a rate of refusals.
func (p *program) watchRights(ctx context.Context) {
	for missing := map[authorizationv1.ResourceAttributes]bool{}; ; {
		for _, r := range p.options.rights() {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &r}}
			answer, err := p.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				break // NodeIPAMForbidden or NodeIPAMAPIErrors counts it
			}
			resource, value := r.Resource, 0.0
			if r.Subresource != "" {
				resource += "/" + r.Subresource
			}
			if !answer.Status.Allowed {
				value = 1
				if !missing[r] {
					p.log.Error("the service account lacks a right", "verb", r.Verb, "resource", resource, "group", r.Group, "namespace", r.Namespace)
				}
			}
			missing[r] = !answer.Status.Allowed
			p.chooser.metrics.rights.WithLabelValues(resource, r.Verb).Set(value)
		}
		if !sleep(ctx, rightsPeriod) {
			return
		}
	}
}
