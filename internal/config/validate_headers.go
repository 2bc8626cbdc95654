package config

import (
	"fmt"
	"slices"

	"github.com/xds-relay/xds-relay/internal/header"
)

// headers checks the headers of streams: the relay's own, and those of clients
// (NODE-13).
func (v *validator) headers() {
	forward := v.c.Groups.ForwardHeaders
	for i, e := range v.c.Upstream.AllEntries() {
		v.ownHeaders(e.Section+".headers", e.Headers)
		if i > 0 && e.ForwardHeaders && !v.forwardsAny() {
			v.fail(e.Section+".forward_headers", "name them in groups.forward_headers", "there are no headers to forward")
		}
	}
	for i := range forward {
		v.forwarded(fmt.Sprintf("groups.forward_headers[%d]", i), forward, i)
	}
	if len(forward) > 0 && len(v.c.Downstream.ReadyTypes) > 0 {
		v.fail("downstream.ready_types", "leave it out", "the relay has nobody's headers to ask with when groups.forward_headers is set")
	}
}

// forwarded checks a header of clients that is to go up.
func (v *validator) forwarded(key string, names []string, i int) {
	name := names[i]
	problem, hint := header.CheckName(name)
	switch taken := v.setBy(name); {
	case problem != "":
		v.fail(key, hint, "%q %s", clip(name), problem)
	case slices.Contains(names[:i], name):
		v.fail(key, "", "%q is listed twice", clip(name))
	case taken != "":
		v.fail(key, "remove one of the two: what a client does not send is never filled in", "%q is also in %s", clip(name), taken)
	case name == clientCert && !v.behindProxy():
		v.fail(key, "tell clients apart by groups.key: [identity], which comes from their certificates; or listen on loopback or a Unix socket without downstream.tls, behind the proxy that sets it",
			"%q is what a client says of itself here, and the control plane would take it for a certificate that was verified", name)
	}
}

// forwardsAny reports whether headers of clients go up at all.
func (v *validator) forwardsAny() bool {
	return len(v.c.Groups.ForwardHeaders) > 0 || slices.ContainsFunc(v.c.Passthrough, func(p Passthrough) bool { return len(p.ForwardHeaders) > 0 })
}

// clientCert is the header in which a proxy says what certificate its client has shown.
const clientCert = "x-forwarded-client-cert"

// behindProxy reports whether only a proxy on this host can be the relay's client, and has ended TLS.
func (v *validator) behindProxy() bool {
	d := &v.c.Downstream
	return !d.TLS.Enabled() && v.onThisHost()
}

func (v *validator) ownHeaders(section string, headers map[string]Header) {
	for name, h := range headers {
		key := child(section, name)
		if problem, hint := header.CheckName(name); problem != "" {
			v.fail(key, hint, "%q %s", clip(name), problem)
			continue
		}
		switch {
		case h.File != "" && h.Value != "":
			v.fail(child(key, "file"), "remove one of the two", "there is a value, too")
		case h.File == "":
			if _, err := h.Read(); err != nil {
				v.fail(key, "give it a value, or a file that holds one", "%v", err)
			}
		case !header.Value(h.Prefix).Printable():
			v.fail(child(key, "prefix"), `for example "Bearer "`, "is not printable ASCII")
		}
	}
}

// setBy is the section of upstream in which the relay sets a header of its own, if
// there is one.
func (v *validator) setBy(name string) string {
	for _, e := range v.c.Upstream.AllEntries() {
		if _, ok := e.Headers[name]; ok {
			return e.Section + ".headers"
		}
	}
	return ""
}

// CheckHeaderFiles checks that the files of headers can be read, and hold what can
// be sent. A relay that runs does without for as long as it has to, and so starts
// without, too: [Config.CheckFiles] leaves them alone.
func (c *Config) CheckHeaderFiles() error {
	v := &validator{c: c}
	check := func(section string, headers map[string]Header) {
		for name, h := range headers {
			if h.File == "" {
				continue
			}
			if _, err := h.Read(); err != nil {
				v.fail(child(child(section, name), "file"), "check the path, the permissions and what the file holds", "%v", err)
			}
		}
	}
	check("admin.webhook.headers", c.Admin.Webhook.Headers)
	for _, e := range c.Upstream.AllEntries() {
		check(e.Section+".headers", e.Headers)
	}
	return join(v.errs)
}
