package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestPassthroughMistakes: what cannot go through is refused where it is written.
func TestPassthroughMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"passthrough: [{service: envoy.service.discovery.v3.AggregatedDiscoveryService}]":                          "passthrough[0].service: \"envoy.service.discovery.v3.AggregatedDiscoveryService\" is one of the services that the relay has itself",
		"passthrough: [{service: grpc.reflection.v1.ServerReflection}]":                                            "has itself",
		"passthrough: [{service: a.B/C}]":                                                                          "is no name of a gRPC service",
		"passthrough: [{max_calls: 1}]":                                                                            "\"\" is no name of a gRPC service",
		"passthrough: [{service: a.B}, {service: a.B}]":                                                            "passthrough[1].service: \"a.B\" is listed twice",
		"passthrough: [{service: a.B, max_calls: -1}]":                                                             "passthrough[0].max_calls: must not be negative",
		"passthrough: [{service: a.B, max_calls: 10000}]":                                                          "need 102 connections",
		"passthrough: [{service: a.B, aggregate: true}]":                                                           "passthrough[0].aggregate: only load reports",
		"passthrough: [{service: " + LoadReporting + ", aggregate: true, forward_headers: [x-t]}]":                 "passthrough[0].forward_headers: one call stands for many clients",
		"passthrough: [{service: a.B, forward_headers: [grpc-x]}]":                                                 "passthrough[0].forward_headers[0]: \"grpc-x\" belongs to gRPC itself",
		"passthrough: [{service: a.B, forward_headers: [x-t]}]\nupstream: {headers: {x-t: y}}":                     "is also in upstream.headers",
		"upstream: {address: 'a:1', insecure: true, fallbacks: [{address: 'localhost:2', forward_headers: true}]}": "there are no headers to forward",
	} {
		if _, err := Parse("relay.yaml", []byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestAggregateNeedsFewConnections: where load is added up there is one call for each group (LRS-4).
func TestAggregateNeedsFewConnections(t *testing.T) {
	c, err := Parse("relay.yaml", []byte("passthrough: [{service: "+LoadReporting+", aggregate: true, max_calls: 100000}]"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := c.PassthroughConnections(c.EffectivePassthrough()); n != 11 {
		t.Errorf("%d connections for %d groups", n, c.Groups.Max)
	}
}

// TestEffectivePassthrough: load reports go through in profile sidecar, unless they are switched off, and take the
// headers of the group with them (LRS-1, NODE-13).
func TestEffectivePassthrough(t *testing.T) {
	const sidecar = "groups: {profile: sidecar, forward_headers: [authorization]}\n"
	for text, want := range map[string]string{
		"": "",
		"groups: {profile: sidecar}\nupstream: {max_connections: 1}": LoadReporting + " 1000 []", // as before there was passthrough
		sidecar: LoadReporting + " 1000 [authorization]",
		sidecar + "passthrough: [{service: a.B}]":                                                                      "a.B 1000 [], " + LoadReporting + " 1000 [authorization]",
		sidecar + "passthrough: [{service: " + LoadReporting + ", max_calls: 0}]":                                      "",
		sidecar + "passthrough: [{service: " + LoadReporting + ", max_calls: 9, forward_headers: [x, authorization]}]": LoadReporting + " 9 [authorization x]",
		"passthrough: [{service: " + LoadReporting + "}, {service: a.B, max_calls: 0}]":                                LoadReporting + " 1000 []",
	} {
		c, err := Parse("relay.yaml", []byte(text), nil)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var got []string
		for _, p := range c.EffectivePassthrough() {
			got = append(got, fmt.Sprint(p.Service, " ", p.EffectiveMaxCalls(), " ", p.ForwardHeaders))
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
