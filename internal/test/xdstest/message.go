package xdstest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Event is one thing the relay said to an actor: the part of a "<" line behind the marker, and the message it was made from.
type Event struct {
	Actor, Text string
	Message     proto.Message // nil where there was none: end, closed
}

func (e Event) String() string { return e.Actor + " < " + e.Text }

// Response is the message that a resp command stands for.
func (c Command) Response(sotw bool) (proto.Message, error) {
	wrapped := make([]*discoveryv3.Resource, len(c.Resources))
	for i, r := range c.Resources {
		body, err := r.Body(c.TypeURL)
		if err != nil {
			return nil, err
		}
		wrapped[i] = &discoveryv3.Resource{Name: r.Name, Version: r.Version, Aliases: r.Aliases, Resource: body}
		if r.Qualified > 0 {
			wrapped[i].ResourceName = &discoveryv3.ResourceName{Name: r.Name}
		}
		if r.Qualified == 1 {
			wrapped[i].Name = ""
		}
		if r.TTL != 0 {
			wrapped[i].Ttl = durationpb.New(r.TTL)
		}
		if r.NoCache {
			wrapped[i].CacheControl = &discoveryv3.Resource_CacheControl{DoNotCache: true}
		}
	}
	var errors []*discoveryv3.ResourceError
	for _, e := range c.Errors {
		name := &discoveryv3.ResourceName{Name: e.Name}
		errors = append(errors, &discoveryv3.ResourceError{ResourceName: name, ErrorDetail: e.Status.proto()})
	}
	var identity *corev3.ControlPlane
	if id := c.Options["id"]; id != "" {
		identity = &corev3.ControlPlane{Identifier: id}
	}
	if !sotw {
		return &discoveryv3.DeltaDiscoveryResponse{
			TypeUrl: c.TypeURL, Nonce: c.Options["nonce"], SystemVersionInfo: c.Options["version"], ControlPlane: identity,
			Resources: wrapped, RemovedResources: c.Minus, ResourceErrors: errors,
		}, nil
	}
	if len(c.Minus) > 0 {
		return nil, fmt.Errorf("a SotW response cannot remove %s: leave it out", c.Minus)
	}
	resp := &discoveryv3.DiscoveryResponse{
		TypeUrl: c.TypeURL, Nonce: c.Options["nonce"], VersionInfo: c.Options["version"], ControlPlane: identity, ResourceErrors: errors,
	}
	for _, w := range wrapped {
		body := w.GetResource()
		if body == nil || len(w.GetAliases()) > 0 || w.GetTtl() != nil || w.GetCacheControl() != nil {
			var err error
			if body, err = anypb.New(w); err != nil {
				return nil, err
			}
		}
		resp.Resources = append(resp.Resources, body)
	}
	return resp, nil
}

// Ear makes events of the requests on one stream to the control plane.
type Ear struct {
	Show []string // of a transcript

	spoken bool
	node   string // as it was printed last, in full
}

// Hear is what the control plane hears when a request arrives: the request, and open before it if it is the stream's first.
func (e *Ear) Hear(m proto.Message) []string {
	var node *corev3.Node
	var text, open string
	switch req := m.(type) {
	case *discoveryv3.DeltaDiscoveryRequest:
		node, text, open = req.GetNode(), deltaRequest(req), "open"
	case *discoveryv3.DiscoveryRequest:
		node, text, open = req.GetNode(), sotwRequest(req), "open sotw"
	}
	who := " nonode"
	if node != nil {
		who = nodeWords(node, slices.Contains(e.Show, "features"))
	}
	if first := !e.spoken; first {
		e.spoken, e.node = true, nodeWords(node, true)
		return []string{open + who, text}
	}
	if node == nil || nodeWords(node, true) == e.node && !slices.Contains(e.Show, "node") {
		return []string{text}
	}
	e.node = nodeWords(node, true)
	return []string{text + who}
}

func deltaRequest(req *discoveryv3.DeltaDiscoveryRequest) string {
	var words []string
	switch {
	case req.GetErrorDetail() != nil:
		words = append(words, "nack", ShortName(req.GetTypeUrl()), quote(req.GetResponseNonce()), protoStatus(req.GetErrorDetail()).join(" "))
	case req.GetResponseNonce() != "":
		words = append(words, "ack", ShortName(req.GetTypeUrl()), quote(req.GetResponseNonce()))
	default:
		words = append(words, "sub", ShortName(req.GetTypeUrl()))
	}
	words = append(words, sorted("", req.GetResourceNamesSubscribe())...)
	words = append(words, sorted("-", req.GetResourceNamesUnsubscribe())...)
	words = append(words, locators(req.GetResourceLocatorsSubscribe())...)
	if init := req.GetInitialResourceVersions(); len(init) > 0 {
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(init)) {
			pairs = append(pairs, Resource{Name: name, Version: init[name]}.versioned())
		}
		words = append(words, "init="+strings.Join(pairs, ","))
	}
	return strings.Join(words, " ")
}

func sotwRequest(req *discoveryv3.DiscoveryRequest) string {
	words := append([]string{"req", ShortName(req.GetTypeUrl())}, sorted("", req.GetResourceNames())...)
	words = append(words, locators(req.GetResourceLocators())...)
	if req.GetResponseNonce() != "" {
		words = append(words, "nonce="+quote(req.GetResponseNonce()))
	}
	if req.GetVersionInfo() != "" {
		words = append(words, "version="+quote(req.GetVersionInfo()))
	}
	if req.GetErrorDetail() != nil {
		words = append(words, "err="+protoStatus(req.GetErrorDetail()).join(""))
	}
	return strings.Join(words, " ")
}

func locators(list []*discoveryv3.ResourceLocator) []string {
	var names []string
	for _, l := range list {
		names = append(names, l.GetName())
	}
	if names == nil {
		return nil
	}
	return []string{"loc=" + strings.Join(sorted("", names), ",")}
}

// sorted quotes the names, each behind a prefix.
func sorted(prefix string, names []string) []string {
	out := quoteAll(slices.Sorted(slices.Values(names)))
	for i := range out {
		out[i] = prefix + out[i]
	}
	return out
}

// versioned is name@version, and no more.
func (r Resource) versioned() string {
	if r.Version == "" {
		return quote(r.Name)
	}
	return quote(r.Name) + "@" + quote(r.Version)
}

// contents prints what a response carries: resources, removals and errors, each sorted by name.
func contents(resources []Resource, removed []string, errors []*discoveryv3.ResourceError) []string {
	var words []string
	slices.SortStableFunc(resources, func(a, b Resource) int { return cmp.Compare(a.Name, b.Name) })
	for _, r := range resources {
		words = append(words, "+"+r.String())
	}
	words = append(words, sorted("-", removed)...)
	var last []string
	for _, e := range errors {
		last = append(last, ResourceError{e.GetResourceName().GetName(), protoStatus(e.GetErrorDetail())}.String())
	}
	slices.Sort(last)
	return append(words, last...)
}
