//go:build transplant

// Package testutils runs the suite on one datastore.
package testutils

import (
	"github.com/onsi/ginkgo"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
)

const DatastoreAll, DatastoreEtcdV3 = 0, 0

func E2eDatastoreDescribe(text string, _ int, body func(apiconfig.CalicoAPIConfig)) bool {
	return ginkgo.Describe(text, func() { body(apiconfig.CalicoAPIConfig{}) })
}
