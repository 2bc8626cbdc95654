package authz_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/xds-relay/xds-relay/cache"
)

// many are clients of which each has one Secret, called after it, by one shared rule.
type many struct {
	*scene
	all []*owner
}

// owner is one of them.
type owner struct {
	*call
	name, key string
	lost      bool // the change of the rules takes its Secret away
}

// rulesOfMany let each read its own key, and those who lose it nothing but their other one.
func rulesOfMany(lost string) string {
	return fmt.Sprintf(`rules:
  - identity: "spiffe://td/stays/{sa}"
    read: [{types: [SDS], names: ["stays/{sa}/key"], share: true}]
  - identity: "spiffe://td/loses/{sa}"
    read: [{types: [SDS], names: [%q, "loses/{sa}/other"], share: true}]
`, lost)
}

// come has clients come, many at a time, of which one in five will lose its Secret, and get what is theirs.
func (m *many) come(n int) {
	for i := range n {
		kind := "stays"
		if i%5 == 0 {
			kind = "loses"
		}
		o := &owner{name: fmt.Sprintf("%s/c%d", kind, i), lost: i%5 == 0}
		o.key = o.name + "/key"
		m.plane.set(cache.Secret, o.key, o.key+" 1")
		o.call = begin(m.t, m.as("spiffe://td/"+o.name, nil), deltaADS, cache.Secret)
		m.all = append(m.all, o)
		others := m.all[i/2].key // somebody else's, which it asks for, too
		if o.asks(nodeOf(o.name, ""), nil, o.key, others); i > 0 {
			o.denied(others)
		}
	}
	for _, o := range m.all {
		o.gets(o.key, o.key+" 1")
	}
}

// changes gives every Secret another text.
func (m *many) changes() {
	for _, o := range m.all {
		m.plane.set(cache.Secret, o.key, o.key+" 2")
	}
	for _, o := range m.all {
		if !o.lost {
			o.gets(o.key, o.key+" 2")
		}
	}
}

// told waits until all that lose something have been told so, and returns how long that took.
func (m *many) told(begin time.Time) time.Duration {
	for _, o := range m.all {
		if o.lost {
			gone := func(a *answer) bool { return slices.Contains(a.removed, o.key) }
			denied := func(a *answer) bool { return codes.Code(a.errors[o.key]) == codes.PermissionDenied } //nolint:gosec // a code
			if err := o.awaits("the removal", func(all []*answer) bool { return anyOf(all, gone) && anyOf(all, denied) }); err != nil {
				m.t.Errorf("%s: %v", o.name, err)
			}
		}
	}
	return time.Since(begin)
}

// judge fails if anybody was sent what is not its own, or what it had lost.
func (m *many) judge() {
	for _, o := range m.all {
		got, end := o.heard()
		if end != nil {
			m.t.Errorf("%s: %v", o.name, end)
		}
		for _, a := range got {
			for name, text := range a.texts {
				if name != o.key || !strings.HasPrefix(text, name+" ") || o.lost && text != name+" 1" {
					m.t.Errorf("%s is sent %q: %q", o.name, name, text)
				}
			}
			if len(a.removed) > 0 && (!o.lost || !slices.Equal(a.removed, []string{o.key})) {
				m.t.Errorf("%s is told that %q are gone", o.name, a.removed)
			}
		}
	}
}

// TestManyShareAStream: one stream to the control plane serves all clients their Secrets, if their rules say share:
// true. Each is sent its own, and nobody another's. When rules change, those who have lost theirs are told at once. In
// the long form there are 5,000, of which 1,000 lose theirs.
func TestManyShareAStream(t *testing.T) {
	n := 200
	if long() {
		n = 5000
	}
	m := &many{scene: newScene(t, rulesOfMany("loses/{sa}/key"))}
	m.come(n)
	if streams := m.plane.relayStreams(); streams != 1 {
		t.Errorf("there are %d streams to the control plane", streams)
	}
	begin := time.Now()
	m.ruled(rulesOfMany("nothing"))
	t.Logf("%d clients: %d have been told what they have lost after %v", n, n/5, m.told(begin).Round(time.Millisecond))
	m.changes()
	m.judge()
	if broken := m.relay.Check(); len(broken) > 0 {
		t.Error(broken)
	}
	for _, o := range m.all {
		o.over()
	}
}
