package session

import (
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// TestWhatAStreamKeepsIsBounded: what is kept of a request for as long as its stream
// is not allowed to be as large as a request (VALID-8).
func TestWhatAStreamKeepsIsBounded(t *testing.T) {
	long := strings.Repeat("x", maxNode)
	for says, req := range map[string]*discovery.DeltaDiscoveryRequest{
		"node of":    {TypeUrl: string(cache.Cluster), Node: &core.Node{Cluster: long}},
		"type_url":   {TypeUrl: long},
		"version of": {TypeUrl: string(cache.Cluster), InitialResourceVersions: map[string]string{"a": long}},
	} {
		_, end := newTold(t, Config{}).DeltaRequest(req, epoch)
		if end == nil || end.Reason != OverLimit || !strings.Contains(end.Message, says) || len(end.Message) > 1000 {
			t.Errorf("%s: %v", says, end)
		}
	}
}
