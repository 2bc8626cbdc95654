package cache

import (
	"bytes"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// TestCanonical: names that differ only in the order of their parameters have one spelling, and all
// others have their own (NAME-8).
func TestCanonical(t *testing.T) {
	for name, want := range map[string]string{
		"":                      "",
		"a?b=2&a=1":             "a?b=2&a=1",
		"XDSTP://cp/t/x?b=&a=":  "XDSTP://cp/t/x?b=&a=",
		"xdstp://":              "xdstp://",
		"xdstp://cp/t/x":        "xdstp://cp/t/x",
		"xdstp://cp/t/x?":       "xdstp://cp/t/x?",
		"xdstp://cp/t/x?b=2":    "xdstp://cp/t/x?b=2",
		"xdstp://cp/t/x?b&a":    "xdstp://cp/t/x?b&a",
		"xdstp://cp/t/x?b=2&":   "xdstp://cp/t/x?b=2&",
		"xdstp://cp/t/x&b=2&a=": "xdstp://cp/t/x&b=2&a=",

		"xdstp://cp/t/x?b=2&a=1":         "xdstp://cp/t/x?a=1&b=2",
		"xdstp://cp/t/x?a=1&b=2":         "xdstp://cp/t/x?a=1&b=2",
		"xdstp:///t/x?b=2&a=1":           "xdstp:///t/x?a=1&b=2",
		"xdstp://cp/t/*?b=2&a=1":         "xdstp://cp/t/*?a=1&b=2",
		"xdstp://cp/t/x?b=a=z&a=":        "xdstp://cp/t/x?a=&b=a=z",
		"xdstp://cp/t/x?a-b=3&b=2&a=1":   "xdstp://cp/t/x?a=1&a-b=3&b=2",
		"xdstp://cp/t/x?c=3&a=1#k=v&j=u": "xdstp://cp/t/x?a=1&c=3#k=v&j=u",
		"xdstp://cp/t/x#k=v?b=2&a=1":     "xdstp://cp/t/x#k=v?b=2&a=1",
		"xdstp://cp/t/x?b=1&a=1&b=0":     "xdstp://cp/t/x?b=1&a=1&b=0", // it is not defined which b counts
		"xdstp://cp/t/x?b=0&a=1&b=1":     "xdstp://cp/t/x?b=0&a=1&b=1",
	} {
		if got := Canonical(name); got != want || Canonical(got) != got || len(got) != len(name) {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	ordinary := []string{"a", "xdstp://cp/t/x?a=1&b=2"}
	if n := testing.AllocsPerRun(100, func() { Canonical("outbound|80||svc") }); n != 0 || &Canonicals(ordinary)[0] != &ordinary[0] {
		t.Errorf("ordinary names cost %v allocations, or a list", n)
	}
}

// TestGlob: globs are told from names, and cover what is one segment below with the same parameters
// (NAME-11).
func TestGlob(t *testing.T) {
	for name, want := range map[string]bool{
		"": false, "*": false, "t/*": false, "xdstp://*": false, "xdstp://cp/t/x": false, "xdstp://cp/t/*x": false,
		"xdstp://cp/t/x?a=/*": false, "xdstp://cp/t/x#/*": false,
		"xdstp://cp/t/*": true, "xdstp://cp/t/a/*": true, "xdstp:///t/*": true, "xdstp://cp/t/*?a=1": true, "xdstp://cp/t/*#k=v": true,
	} {
		if IsGlob(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
	for name, want := range map[string]string{
		"": "", "t/x": "", "xdstp://": "", "xdstp://cp": "",
		"xdstp://cp/t/x": "xdstp://cp/t/*", "xdstp://cp/t/a/x": "xdstp://cp/t/a/*", "xdstp://cp/t/x?a=/1&b=2": "xdstp://cp/t/*?a=/1&b=2",
		"xdstp://cp/t/*": "xdstp://cp/t/*", "xdstp://cp/t/*?a=1#k=v": "xdstp://cp/t/*?a=1",
	} {
		if got := GlobOf(name); got != want {
			t.Errorf("%q is covered by %q, want %q", name, got, want)
		}
	}
}

// TestRespelled: a resource under another spelling differs in its name alone, wherever that stands, and the
// shared one stays as it is (NAME-9).
func TestRespelled(t *testing.T) {
	const name, upstreams, own = "xdstp://cp/t/x?a=1&b=2&c=3", "xdstp://cp/t/x?c=3&b=2&a=1", "xdstp://cp/t/x?b=2&a=1&c=3"
	message := func(wire []byte) *discovery.Resource {
		t.Helper()
		r := new(discovery.Resource)
		if err := proto.Unmarshal(wire, r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, qualified := range []bool{false, true} {
		in, want := received(), received()
		in.Name, want.Name = upstreams, own
		if qualified {
			in.Name, in.ResourceName = "", &discovery.ResourceName{Name: upstreams, DynamicParameterConstraints: &discovery.DynamicParameterConstraints{}}
			want.Name, want.ResourceName = "", proto.CloneOf(in.ResourceName)
			want.ResourceName.Name = own
		}
		r := NewResource("type.googleapis.com/test.T", in, Fingerprint{})
		want.Version = r.Version
		element := bytes.Clone(r.Element())
		c := r.Respelled(own)
		var delta discovery.DeltaDiscoveryResponse
		if err := proto.Unmarshal(c.Element(), &delta); err != nil || !proto.Equal(delta.GetResources()[0], want) {
			t.Errorf("%v, %v, want %v", err, delta.GetResources(), want)
		}
		if got := message(c.Content()); !proto.Equal(got, want) {
			t.Errorf("its content is %v", got)
		}
		if !bytes.Equal(c.Body(), r.Body()) {
			t.Error("its body differs")
		}
		h := message(c.Heading())
		if got, _ := NameOf(h); got != name || h.GetName()+h.GetResourceName().GetName() != own || h.GetVersion() != want.Version || h.GetResource() != nil {
			t.Errorf("its heading is %v", h)
		}
		if r.Name != name || r.Spelled != upstreams || !bytes.Equal(r.Element(), element) || strings.Contains(string(r.Element()), own) {
			t.Errorf("the shared resource is %q, %q", r.Name, r.Element())
		}
		shared := message(r.Content())
		if shared.Version = in.GetVersion(); !proto.Equal(shared, in) {
			t.Errorf("the shared resource is %v, and %v was received", shared, in)
		}
	}
}
