package service

import (
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
)

func TestStream(t *testing.T) {
	for _, s := range All() {
		for _, delta := range []bool{true, false} {
			d, method, ok := s.Stream(!delta)
			onlyDelta := s.Type == cache.VirtualHost || s.Type == cache.LocalityHost
			if want := delta || !onlyDelta; ok != want {
				t.Errorf("%s, delta %v: there is a method: %v, want %v", s.ServiceName, delta, ok, want)
				continue
			}
			if !ok {
				continue
			}
			if !d.ClientStreams || !d.ServerStreams || IsDelta(*d) != delta {
				t.Errorf("%s, delta %v: found %+v", s.ServiceName, delta, d)
			}
			if !strings.HasPrefix(method, "/envoy.service.") || !strings.HasSuffix(method, "/"+d.StreamName) {
				t.Errorf("%s, delta %v: the method is %q", s.ServiceName, delta, method)
			}
		}
	}
}

func TestOf(t *testing.T) {
	for url, want := range map[cache.TypeURL]string{
		"":             "envoy.service.discovery.v3.AggregatedDiscoveryService",
		cache.Endpoint: "envoy.service.endpoint.v3.EndpointDiscoveryService",
	} {
		if s, ok := Of(url); !ok || s.ServiceName != want {
			t.Errorf("%q: %q, %v, want %q", url, s.ServiceName, ok, want)
		}
	}
	if s, ok := Of("type.googleapis.com/made.Up"); ok {
		t.Errorf("a type without a service has %q", s.ServiceName)
	}
}

// TestRESTPath: the paths are those that the protos annotate their Fetch methods with.
func TestRESTPath(t *testing.T) {
	for _, s := range All() {
		fetches := len(s.Methods) > 0
		if path := s.RESTPath(); (path != "") != fetches {
			t.Errorf("%s is polled at %q, and has a unary method: %v", s.ServiceName, path, fetches)
		}
	}
	if s, _ := Of(cache.ScopedRoute); s.RESTPath() != "/v3/discovery:scoped-routes" {
		t.Errorf("scoped routes are polled at %q", s.RESTPath())
	}
}
