package config

import (
	"strings"
	"testing"
)

// TestConflicts: what can never work is refused.
func TestConflicts(t *testing.T) {
	for text, want := range map[string]string{
		"upstream: {types: [CDS]}\ndownstream: {ready_types: [LDS]}\n":                                  "upstream.types",
		"downstream: {listen: ['0.0.0.0:18000'], insecure: true}\nadmin: {listen: '127.0.0.1:18000'}\n": "also in downstream.listen",
		"admin: {listen: '127.0.0.1:18001'}\nmetrics: {listen: ':18001'}\n":                             "also admin.listen",
		"downstream: {listen: ['unix:///run/a/x.sock', 'unix:///run/a/../a/x.sock']}\n":                 "listed twice",
		"downstream: {listen: ['127.0.0.1:18000', ':18000'], insecure: true}\n":                         "listed twice",
		"downstream: {rest: {listen: '127.0.0.1:18000'}}\n":                                             "also in downstream.listen",
		"downstream: {rest: {listen: '127.0.0.1:18001'}}\nadmin: {listen: '127.0.0.1:18001'}\n":         "also downstream.rest.listen",
		"downstream: {rest: {listen: '127.0.0.1:18002'}}\nmetrics: {listen: '127.0.0.1:18002'}\n":       "also downstream.rest.listen",
		"downstream: {rest: {listen: '0.0.0.0:18080'}}\n":                                               "would be plaintext",
		"downstream: {rest: {listen: '18080'}}\n":                                                       "downstream.rest.listen",
		"downstream: {rest: {hold: 61s}}\n":                                                             "at most 1m0s",
		"downstream: {rest: {interest_ttl: 0s}}\n":                                                      "more than 0",
		"downstream: {rest: {max_pollers: 0}}\n":                                                        "more than 0",
	} {
		if _, err := Parse("relay.yaml", []byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		"upstream: {types: [CDS]}\ndownstream: {ready_types: [type.googleapis.com/envoy.config.cluster.v3.Cluster]}\n",
		"downstream: {listen: ['127.0.0.1:0', '127.0.0.1:0']}\nadmin: {listen: '127.0.0.1:0'}\nmetrics: {listen: '0.0.0.0:0'}\n",
		"downstream: {listen: ['127.0.0.1:18000', '127.0.0.2:18000', '[::1]:18000']}\n",
	} {
		if _, err := Parse("relay.yaml", []byte(text), nil); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
