package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Passthrough is a service of the control plane that the relay does not understand, and whose calls it leads there
// (LRS-2).
type Passthrough struct {
	// Service is its full name, such as envoy.service.load_stats.v3.LoadReportingService. Required. The services
	// that the relay has itself, such as those of discovery, cannot be listed.
	Service string `yaml:"service"`

	// MaxCalls is how many calls of it there may be at once; those beyond get RESOURCE_EXHAUSTED, or take the
	// place of a call of a client that has more of them. 0 switches the service off. Null means 1000.
	// upstream.max_connections must have room for the calls of all services together.
	// Default: null.
	MaxCalls *int `yaml:"max_calls"`

	// ForwardHeaders lists headers of the clients' calls that go up with them, under the rules of
	// groups.forward_headers: to fallbacks only if these say forward_headers. What groups.forward_headers names
	// goes up with load reports in any case (NODE-13).
	// Default: [].
	ForwardHeaders []string `yaml:"forward_headers"`

	// Aggregate adds up the load reports of all clients of a group: for each group the control plane has one call of
	// the relay, which shows the group's node and reports the sums once an interval (LRS-4 to LRS-8). So a client's
	// report goes up at most one interval later. It is for envoy.service.load_stats.v3.LoadReportingService only, and
	// not with forward_headers, since one call stands for many; what groups.forward_headers names is the group's, and
	// goes up. A sum may be larger than any client's report; servers of gRPC take 4 MiB if they are not told otherwise.
	// When it changes, open calls end with UNAVAILABLE.
	// Default: false.
	Aggregate bool `yaml:"aggregate"`
}

// LoadReporting is the service to which clients report their load (LRS).
const LoadReporting = "envoy.service.load_stats.v3.LoadReportingService"

// defaultCalls is what MaxCalls is if it is null.
const defaultCalls = 1000

// EffectiveMaxCalls resolves the null max_calls.
func (p *Passthrough) EffectiveMaxCalls() int {
	if p.MaxCalls == nil {
		return defaultCalls
	}
	return *p.MaxCalls
}

// EffectivePassthrough are the services that go through: those that are listed and not switched off, and load reports in
// profile sidecar (LRS-1). Load reports take the headers of groups.forward_headers with them.
func (c *Config) EffectivePassthrough() (services []Passthrough) {
	all := c.Passthrough
	if c.Groups.Profile == ProfileSidecar && !slices.ContainsFunc(all, func(p Passthrough) bool { return p.Service == LoadReporting }) {
		all = append(slices.Clip(all), Passthrough{Service: LoadReporting})
	}
	for _, p := range all {
		if p.Service == LoadReporting {
			p.ForwardHeaders = union(c.Groups.ForwardHeaders, p.ForwardHeaders)
		}
		if p.EffectiveMaxCalls() > 0 {
			services = append(services, p)
		}
	}
	return services
}

func union(a, b []string) []string {
	return append(slices.Clip(a), slices.DeleteFunc(slices.Clone(b), func(s string) bool { return slices.Contains(a, s) })...)
}

// PassthroughConnections is how many connections to a control plane the calls of services may need; one stream of
// each connection stays free. Where load is added up there is one call for each group.
func (c *Config) PassthroughConnections(services []Passthrough) int {
	calls, each := 0, max(c.Upstream.MaxStreamsPerConnection-1, 1)
	for _, p := range services {
		if n := p.EffectiveMaxCalls(); p.Aggregate {
			calls += min(n, c.Groups.Max)
		} else {
			calls += n
		}
	}
	return (calls + each - 1) / each
}

// ownServices begin the names of the services that the relay has itself, or that belong to one hop. Its
// services all begin so, which a test of package relay checks.
var ownServices = []string{
	"envoy.service.discovery.", "envoy.service.listener.", "envoy.service.route.", "envoy.service.cluster.", "envoy.service.endpoint.",
	"envoy.service.secret.", "envoy.service.runtime.", "envoy.service.extension.", "envoy.service.status.", "envoy.api.v2.",
	"grpc.health.", "grpc.reflection.", "grpc.channelz.",
}

// serviceName is the full name of a protobuf service.
var serviceName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

func (v *validator) passedThrough() {
	var seen []string
	for i, p := range v.c.Passthrough {
		key := fmt.Sprintf("passthrough[%d]", i)
		own := slices.IndexFunc(ownServices, func(prefix string) bool { return strings.HasPrefix(p.Service, prefix) })
		switch {
		case !serviceName.MatchString(p.Service):
			v.fail(key+".service", "write its full name without a method, for example "+LoadReporting, "%q is no name of a gRPC service", clip(p.Service))
		case own >= 0:
			v.fail(key+".service", "leave it out: clients get it from the relay", "%q is one of the services that the relay has itself (%s…)", clip(p.Service), ownServices[own])
		case slices.Contains(seen, p.Service):
			v.fail(key+".service", "remove one of the two", "%q is listed twice", clip(p.Service))
		}
		seen = append(seen, p.Service)
		switch {
		case p.Aggregate && p.Service != LoadReporting:
			v.fail(key+".aggregate", "leave it out", "only load reports ("+LoadReporting+") can be added up")
		case p.Aggregate && len(p.ForwardHeaders) > 0:
			v.fail(key+".forward_headers", "name them in groups.forward_headers, so that only clients with the same values share a call", "one call stands for many clients with aggregate, whose headers may differ")
		}
		for j := range p.ForwardHeaders {
			v.forwarded(fmt.Sprintf("%s.forward_headers[%d]", key, j), p.ForwardHeaders, j)
		}
	}
	if need, most := v.c.PassthroughConnections(v.c.Passthrough), v.c.Upstream.MaxConnections; need > most {
		v.fail("passthrough[0].max_calls", "raise upstream.max_connections, or lower max_calls",
			"all services together may have so many calls that they need %d connections of upstream.max_streams_per_connection, and upstream.max_connections is %d", need, most)
	}
}
