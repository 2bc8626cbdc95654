package cache

import "testing"

// TestSecretTypes: the messages that hold secrets are secret in both versions of the API and whatever stands before
// the slash, and the operator may say otherwise of any type (NODE-6).
func TestSecretTypes(t *testing.T) {
	made := Types{Cluster: {FullState: true, Secret: true}, Secret: {}}
	for url, want := range map[TypeURL][2]bool{ // in the table, and with the operator's word
		Secret: {true, false},
		"type.googleapis.com/envoy.api.v2.auth.Secret":                       {true, true},
		"envoy.extensions.transport_sockets.tls.v3.Secret":                   {true, true},
		"other.example/x/envoy.extensions.transport_sockets.tls.v3.Secret":   {true, true},
		"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secr": {false, false},
		"type.googleapis.com/my.envoy.api.v2.auth.Secret":                    {false, false},
		Cluster: {false, true}, Extension: {false, false}, "": {false, false}, "/": {false, false},
	} {
		if got := [2]bool{Types(nil).Of(url).Secret, made.Of(url).Secret}; got != want {
			t.Errorf("%q is secret: %v, want %v", url, got, want)
		}
	}
	if v2 := Types(nil).Of("type.googleapis.com/envoy.api.v2.auth.Secret"); !v2.EmptyIsWildcard || v2.FullState {
		t.Errorf("in everything else it is like any type that the table does not name: %+v", v2)
	}
	keyed := Fingerprint{SecretKey: []byte("0123456789abcdef"), Types: made}
	for url, changes := range map[TypeURL]bool{Cluster: true, Secret: false} {
		if got := keyed.Of(string(url), nil, nil) != (Fingerprint{}).Of(string(url), nil, nil); got != changes {
			t.Errorf("%s: the key makes a difference: %v", url.Short(), got)
		}
	}
}
