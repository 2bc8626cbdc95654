package cache

import (
	"slices"
	"testing"
)

// TestTypesOfV2: a type of the v2 API has the row of the one that replaced it, and a name of its own.
func TestTypesOfV2(t *testing.T) {
	for old, now := range ofV2 {
		if old.V3() != now || now.V2() != old || now.V3() != now {
			t.Errorf("%s stands for %s, and %s for %s", old, old.V3(), now.V2(), now)
		}
		if old.Short() != now.Short() || old.Rank() != now.Rank() || old.ReplacesAtOnce() != now.ReplacesAtOnce() || Types(nil).Of(old) != Types(nil).Of(now) {
			t.Errorf("%s is served otherwise than %s", old, now)
		}
		if old.Name() != string(old) || now.Name() != now.Short() {
			t.Errorf("%s is called %q, and %s %q", old, old.Name(), now, now.Name())
		}
		if old.Basic() || slices.Contains(WellKnown(), old) {
			t.Errorf("%s counts as a type that every control plane knows", old)
		}
	}
	if other := TypeURL("type.googleapis.com/envoy.api.v2.Unheard"); other.V3() != other || other.V2() != "" || other.Short() != OtherShort {
		t.Errorf("%s stands for %q", other, other.V3())
	}
	const cluster = "type.googleapis.com/envoy.api.v2.Cluster"
	if !Types(nil).Of(cluster).FullState {
		t.Errorf("a set of %s is not the whole set", cluster)
	}
	if made := (Types{cluster: {}}); made.Of(cluster).FullState || !made.Of(Cluster).FullState {
		t.Error("the operator's word for one API holds for the other")
	}
}

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
	keyed := Fingerprint{SecretKey: []byte("0123456789abcdef"), Types: made}
	for url, changes := range map[TypeURL]bool{Cluster: true, Secret: false} {
		if got := keyed.Of(string(url), nil, nil) != (Fingerprint{}).Of(string(url), nil, nil); got != changes {
			t.Errorf("%s: the key makes a difference: %v", url.Short(), got)
		}
	}
}
