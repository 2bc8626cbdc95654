package relay

import (
	"fmt"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/share"
)

// TestOwners: an entry is its first client's, an exempt client's while one has it, and else that of a client that still
// has it.
func TestOwners(t *testing.T) {
	var l share.Ledger[string]
	e, by := l.Enter("a", false, ""), make(owners)
	l.Take(e, 1, 0, nil)
	a, b, local := owner{holder: "a"}, owner{holder: "b"}, ownerOf(session.Peer{Holder: "127.0.0.1", Relay: true})
	for i, step := range []struct {
		comes, goes owner
		want        owner
	}{
		{comes: a, want: a},
		{comes: b, want: a},
		{comes: a, want: a},
		{goes: a, want: a},
		{comes: local, want: local},
		{comes: local, want: local},
		{goes: a, want: local},
		{goes: local, want: local},
		{goes: local, want: b},
		{goes: b, want: b}, // nobody has it
		{comes: a, want: a},
	} {
		if step.comes != (owner{}) {
			comes(&l, e, by, step.comes)
		} else {
			goes(&l, e, by, step.goes)
		}
		if holder, exempt := e.Holder(); (owner{holder, exempt}) != step.want || l.Check() != nil {
			t.Errorf("step %d: it is %q's, exempt %v, want %+v", i, holder, exempt, step.want)
		}
	}
}

// TestTypesOfExemptClientsStay: a type that somebody with very many asked for first does not go while an exempt client, or
// one of another holder, has it.
func TestTypesOfExemptClientsStay(t *testing.T) {
	gr := &group{}
	url := func(i int) cache.TypeURL { return cache.TypeURL(fmt.Sprintf("type.googleapis.com/x.T%d", i)) }
	ask := func(i int, client session.Peer) *member {
		m, _, end := gr.ask(url(i), client)
		if end != nil {
			t.Fatal(end)
		}
		return m
	}
	var many []*member
	for i := range maxKinds {
		many = append(many, ask(i, session.Peer{Holder: "192.0.2.1"}))
	}
	ask(maxKinds-1, session.Peer{Holder: "127.0.0.1", Relay: true, Local: true})
	ask(maxKinds-2, session.Peer{Holder: "192.0.2.2"})
	gr.forget(many[maxKinds-2])
	_, gone, end := gr.ask(url(maxKinds), session.Peer{Holder: "192.0.2.3"})
	if end != nil || len(gone) != 1 || gone[0].client != many[maxKinds-3] {
		t.Errorf("ended for a newcomer: %d, %v", len(gone), end)
	}
}
