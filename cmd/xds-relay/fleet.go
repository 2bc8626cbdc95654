package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/adminclient"
)

// clientState is how far a client is, and its values are from good to bad.
type clientState = admin.ClientState

const (
	inStep   = admin.InStep
	notSent  = admin.NotSent
	stale    = admin.Stale
	refused  = admin.Refused
	rejected = admin.Rejected
)

// typeView is a type of a client as commands show it.
type typeView struct {
	session.ClientType
	State clientState `json:"state"`
}

// clientView is a client as commands show it.
type clientView struct {
	downstream.Client
	Types []typeView  `json:"types"`
	State clientState `json:"state"` // the worst of its types
	// Waits is since when the client has not been in step, by the type that has waited longest.
	Waits  time.Time `json:"waiting_since,omitzero"`
	Behind int       `json:"behind"`
}

// view adds the states of a client.
func view(c downstream.Client) clientView {
	v := clientView{Client: c, Types: make([]typeView, 0, len(c.Types))}
	for _, t := range c.Types {
		state := admin.StateOf(&t)
		v.Types = append(v.Types, typeView{t, state})
		v.State = max(v.State, state)
		v.Behind += t.Behind
		if !t.Since.IsZero() && (v.Waits.IsZero() || t.Since.Before(v.Waits)) {
			v.Waits = t.Since
		}
	}
	return v
}

// worse orders clients: those in the worst state first, of these the ones that have waited longest, and then by stream.
func worse(a, b clientView) int {
	waits := func(c clientView) int64 {
		if c.Waits.IsZero() {
			return 1 << 62
		}
		return c.Waits.UnixNano()
	}
	return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(waits(a), waits(b)), cmp.Compare(a.Stream, b.Stream))
}

// pageSize is the most that a page of a list may have.
const pageSize = "10000"

// clientsOf asks for all clients that match a query, page by page.
func clientsOf(ctx context.Context, relay *adminclient.Client, query url.Values) (all []clientView, err error) {
	query = withLimit(query, pageSize)
	for {
		var page struct {
			Clients  []downstream.Client `json:"clients"`
			Continue string              `json:"continue"`
		}
		if err := relay.Get(ctx, "/clients", query, &page); err != nil {
			return nil, answered(err)
		}
		for _, c := range page.Clients {
			all = append(all, view(c))
		}
		if page.Continue == "" {
			return all, nil
		}
		query.Set("continue", page.Continue)
	}
}

func withLimit(query url.Values, limit string) url.Values {
	all := url.Values{"limit": {limit}}
	for key, values := range query {
		all[key] = slices.Clone(values)
	}
	return all
}

// relayInfo is what /server_info says.
type relayInfo struct {
	Version string `json:"version"`
	Uptime  int64  `json:"uptime_seconds"`
	Ready   bool   `json:"ready"`
	Why     string `json:"why"`
	Clients int    `json:"clients"`
	// Passthrough counts the open calls of each service that goes through to the control plane.
	Passthrough map[string]int `json:"passthrough,omitempty"`
}

// group is what /groups says of one.
type group struct {
	Group    string       `json:"group"`
	Upstream []groupPlane `json:"upstream"`
}

// groupPlane is a control plane as a group sees it.
type groupPlane struct {
	Address     string    `json:"address"`
	InUse       bool      `json:"in_use"`
	State       string    `json:"state"`
	Connected   time.Time `json:"connected_since"`
	Mode        string    `json:"mode"`
	LastMessage time.Time `json:"last_message"`
	LastError   string    `json:"last_error"`
	ErrorAt     time.Time `json:"last_error_at"`
	Retry       time.Time `json:"retry_at"`
}

// planeView is a control plane as all groups together see it that use it.
type planeView struct {
	Address string         `json:"address"`
	Mode    string         `json:"mode,omitempty"`
	Groups  map[string]int `json:"groups"` // by state
	// Connected is since when the oldest stream is open, LastMessage when something came last.
	Connected   time.Time `json:"connected_since,omitzero"`
	LastMessage time.Time `json:"last_message,omitzero"`
	LastError   string    `json:"last_error,omitempty"`
	ErrorAt     time.Time `json:"last_error_at,omitzero"`
	Retry       time.Time `json:"retry_at,omitzero"`
}

// planeFails are the states in which a control plane does not keep a group current, the worst last.
var planeFails = []string{"waiting", "silent", "refused", "down"}

// worst is the worst state of any group, or "current", or "idle".
func (p *planeView) worst() string {
	for _, s := range slices.Backward(planeFails) {
		if p.Groups[s] > 0 {
			return s
		}
	}
	if p.Groups["current"] > 0 {
		return "current"
	}
	return "idle"
}

// planesOf asks for the control planes in use.
func planesOf(ctx context.Context, relay *adminclient.Client) ([]*planeView, error) {
	var answer struct {
		Groups []group `json:"groups"`
	}
	if err := relay.Get(ctx, "/groups", nil, &answer); err != nil {
		return nil, answered(err)
	}
	planes := []*planeView{}
	for _, g := range answer.Groups {
		for _, seen := range g.Upstream {
			if !seen.InUse {
				continue
			}
			i := slices.IndexFunc(planes, func(p *planeView) bool { return p.Address == seen.Address })
			if i < 0 {
				planes, i = append(planes, &planeView{Address: seen.Address, Groups: make(map[string]int)}), len(planes)
			}
			planes[i].add(&seen)
		}
	}
	return planes, nil
}

func (p *planeView) add(seen *groupPlane) {
	p.Groups[seen.State]++
	p.Mode = cmp.Or(p.Mode, seen.Mode)
	if !seen.Connected.IsZero() && (p.Connected.IsZero() || seen.Connected.Before(p.Connected)) {
		p.Connected = seen.Connected
	}
	if seen.LastMessage.After(p.LastMessage) {
		p.LastMessage = seen.LastMessage
	}
	if seen.ErrorAt.After(p.ErrorAt) {
		p.ErrorAt, p.LastError = seen.ErrorAt, seen.LastError
	}
	if seen.Retry.After(p.Retry) {
		p.Retry = seen.Retry
	}
}

// answered makes an error of what the relay said: what it cannot understand is a mistake in the command line, and what
// it does not have may be on another listener.
func answered(err error) error {
	said := (*adminclient.StatusError)(nil)
	if !errors.As(err, &said) {
		return err
	}
	switch said.Code {
	case http.StatusBadRequest:
		return &usageError{errors.New(said.Text)}
	case http.StatusNotFound:
		if said.Text == "404 page not found" || said.Text == "no such endpoint; /help lists all of them" {
			return fmt.Errorf("%s has no %s: it is the address of metrics.listen, or a relay of an older version; give the one of admin.listen", said.Address, said.Path)
		}
		return errors.New(said.Text)
	}
	return err
}

// findClient returns the client that an argument means: the number of a stream, a node id or the beginning of one.
func findClient(ctx context.Context, relay *adminclient.Client, arg string) (stream uint64, err error) {
	var one struct {
		Stream uint64 `json:"stream"`
	}
	if _, err := strconv.ParseUint(arg, 10, 64); err == nil {
		err := relay.Get(ctx, "/clients/"+arg, url.Values{"limit": {"1"}}, &one)
		if said := (*adminclient.StatusError)(nil); err == nil || !errors.As(err, &said) {
			return one.Stream, err
		}
	}
	for _, by := range []string{"node", "prefix"} {
		var found struct {
			Total   int                 `json:"total"`
			Clients []downstream.Client `json:"clients"`
		}
		if err := relay.Get(ctx, "/clients", url.Values{by: {arg}, "limit": {"20"}}, &found); err != nil {
			return 0, answered(err)
		}
		switch {
		case found.Total == 1:
			return found.Clients[0].Stream, nil
		case found.Total > 1:
			return 0, ambiguous(arg, found.Total, found.Clients)
		}
	}
	return 0, fmt.Errorf("no client has the stream or the node id %q; xds-relay ps lists those that are connected to this replica", arg)
}
