package config

import (
	"fmt"
	"slices"
	"strings"
)

// Notes are what a valid configuration says that its author may not have meant: each
// says where, what comes of it, and what to set. What was set on purpose is left alone.
func (c *Config) Notes() []*Error {
	v := &validator{c: c}
	if c.Blank() {
		v.errs = append(v.errs, &Error{
			File: c.prov.src.name, Msg: "the file sets nothing, so that every key has its default",
			Hint: "write the configuration, or leave -c out if the defaults are meant; a running relay refuses such a file when it reloads",
		})
	}
	v.outdated()
	v.guardOfASidecar()
	v.sharedNode()
	v.anybody()
	v.anyServer()
	v.anybodysSecrets()
	v.plainWebhook()
	v.unusedREST()
	return v.errs
}

// anybodysSecrets: with groups.secrets identity the relay keeps what each client asks for apart, and does not
// ask who may ask (NODE-6).
func (v *validator) anybodysSecrets() {
	d, g := &v.c.Downstream, &v.c.Groups
	byIdentity := g.EffectiveSecrets() == SecretsIdentity && d.TLS.AsksClients() && !v.onThisHost()
	upstreamDecides := g.SendIdentity || len(g.ForwardHeaders) > 0
	if !byIdentity || upstreamDecides {
		return
	}
	v.fail("groups.secrets", "set it to policy, with rules in authz.rules_file; or set groups.send_identity, if the control plane decides by that",
		"with identity every client that has a certificate is served any Secret that it names, and the control plane sees only the relay")
}

// onThisHost reports whether all clients are on this host.
func (v *validator) onThisHost() bool {
	d := &v.c.Downstream
	if d.REST.Listen != "" && !isLocalListen(d.REST.Listen) {
		return false
	}
	return !slices.ContainsFunc(d.Listen, func(addr string) bool { return !isLocalListen(addr) })
}

// sidecarGuard are values with which the guard acts for one proxy: it has a few
// resources of each type, so that every removal counts. A control plane that restarts
// shows less than it has for seconds, not minutes.
const sidecarGuard = "{fraction: 0.01, min: 1, within: 15s, hold: 30s}"

// guardOfASidecar: the guard's defaults are for a fleet's resources (H-22).
func (v *validator) guardOfASidecar() {
	const fraction, least = "cache.mass_removal_guard.fraction", "cache.mass_removal_guard.min"
	g := v.c.Cache.MassRemovalGuard
	switch {
	case v.c.Groups.Profile != ProfileSidecar:
	case g.Fraction == 0 && !v.written(fraction):
		v.fail("groups.profile", fmt.Sprintf("set cache.mass_removal_guard to %s, or %s to 0 to do without", sidecarGuard, fraction),
			"with profile sidecar and cache.mass_removal_guard off, the proxy loses every resource that a restarting control plane does not show at once")
	case g.Fraction > 0 && !v.written(least):
		v.fail("cache.mass_removal_guard", fmt.Sprintf("set %s to 1, as in %s", least, sidecarGuard),
			"with profile sidecar the guard never acts: a proxy seldom has %d resources of a type, the default of %s", g.Min, least)
	}
}

// sharedNode: groups that a key tells apart by the client's node are one and the same for the control
// plane if it sees the same node for all of them (NODE-5, NODE-7).
func (v *validator) sharedNode() {
	if v.c.EffectiveNodeMode() != NodeModeStatic {
		return
	}
	var hidden []string
	for _, key := range v.c.keys() {
		for _, entry := range key {
			ofNode := entry != "identity" && !strings.HasPrefix(entry, "constant.")
			if ofNode && !slices.Contains(hidden, entry) {
				hidden = append(hidden, entry)
			}
		}
	}
	if len(hidden) == 0 {
		return
	}
	n := v.c.Upstream.Node
	v.fail("upstream.node_mode", "leave upstream.node_mode out, so that each group shows its own; or take these entries out of the keys, if the answers do not depend on them",
		"clients are grouped by %s, but with node_mode static the control plane sees the same node for all groups (id %q, cluster %q): if its answers depend on the node, every group gets those of that one",
		strings.Join(hidden, ", "), n.ID, n.Cluster)
}

// anybody: TLS without client certificates keeps others from reading along, and nobody from asking.
func (v *validator) anybody() {
	d := &v.c.Downstream
	if !d.TLS.Enabled() || d.TLS.AsksClients() {
		return
	}
	open := func(key, addr string) bool {
		if isLocalListen(addr) {
			return false
		}
		v.fail(key, "set downstream.tls.client_ca, so that only clients with a certificate are served",
			"clients need no certificate: anyone who reaches %q can read what the control plane sends, and ask for more", addr)
		return true
	}
	for i, addr := range d.Listen {
		if open(fmt.Sprintf("downstream.listen[%d]", i), addr) {
			return
		}
	}
	if d.REST.Listen != "" {
		open("downstream.rest.listen", d.REST.Listen)
	}
}

// anyServer: without server_id each workload of the trust domains can be the control plane.
func (v *validator) anyServer() {
	for _, e := range v.c.Upstream.AllEntries() {
		if s := e.TLS.SPIFFE; s.Enabled() && s.ServerID == "" {
			at := e.Section + ".tls.spiffe"
			v.fail(at+".trust_domains", "set "+at+".server_id to the SPIFFE ID of the control plane", "whoever has an SVID of %s can pose as the control plane", strings.Join(s.TrustDomains, ", "))
		}
	}
}
