// Package k8s stands for the datastore that the suite is not run on.
package k8s
