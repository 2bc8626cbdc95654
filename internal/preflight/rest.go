package preflight

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/hint"
	"github.com/xds-relay/xds-relay/internal/origin/rest"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// overREST checks the way to a control plane that is asked over REST, and what it answers.
func (k *checker) overREST(ctx context.Context, s config.Source, e config.Entry) {
	t := &target{section: e.Section, source: s, entry: e.Fallback, hints: hint.ControlPlane{Name: e.Address, Section: e.Section, Within: k.o.Within}}
	_, secure := e.OverREST()
	if secure {
		t.hints.TLS = &hint.TLS{Certificate: e.TLS.Cert != "" || e.TLS.SPIFFE.Enabled(), SPIFFE: e.TLS.SPIFFE.Enabled()}
	}
	text, _ := config.RESTURL(e.Address)
	u, err := url.Parse(text)
	if err != nil {
		k.fail(t.section+": address", "", "%v", err) // it was valid before
		return
	}
	usual := "80"
	if secure {
		usual = "443"
	}
	t.entry.Address = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), usual))
	if !k.resolves(ctx, t) || !k.connects(ctx, t) {
		return
	}
	o, err := relay.FromREST(k.config, e.Fallback)
	if err != nil {
		k.fail(t.section+": REST", "", "%v", err)
		return
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return t.dial(ctx, k.o.Within) },
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return t.secureHTTP(ctx, k.o.Within)
		},
	}
	defer transport.CloseIdleConnections()
	o.Transport, o.Timeout = transport, min(o.Timeout, k.o.Within)
	k.answers(ctx, t, &o)
}

// answers: it has types that can be asked for without names.
func (k *checker) answers(ctx context.Context, t *target, o *rest.Options) {
	name := t.section + ": REST"
	node := relay.NewGrouping(k.config).NodeFor(t.source.Name)
	var said []string
	var failed error
	asked, failures := 0, 0
	for _, typ := range k.types(t.source) {
		if !o.Asks(typ) {
			k.note(name, "list it in an item of upstream.by_type, or leave it out of "+t.section+".types", "%s cannot be asked for over REST", typ.Short())
			continue
		}
		asked++
		n, err := rest.Count(ctx, o, typ, node)
		if err != nil {
			failed = err
			failures++
			said = append(said, fmt.Sprintf("%s: %v", typ.Short(), err))
			continue
		}
		said = append(said, fmt.Sprintf("%d %s", n, typ.Short()))
	}
	todo := ""
	if failed != nil {
		todo = t.advice(failed.Error())
	}
	switch {
	case asked == 0:
		k.note(name, "", "%s has nothing that can be asked for without names", t.section+".types")
	case failed == nil:
		k.ok(name, "%s", strings.Join(said, ", "))
	case failures < asked:
		k.note(name, todo, "%s", strings.Join(said, ", "))
	default:
		k.fail(name, todo, "%s", strings.Join(said, ", "))
	}
}

// advice is what to do about a failure.
func (t *target) advice(failed string) string {
	for _, one := range []struct{ says, do string }{
		{": 404 ", "see whether " + t.section + ".address lacks a part of the path before /v3/, and whether the control plane has any of this type: some answer 404 then"},
		{": 401 ", "it wants to know who asks: see " + t.section + ".headers"},
		{": 403 ", "it wants to know who asks: see " + t.section + ".headers"},
		{": 422 ", "see whether it wants a node with a cluster: set upstream.node.cluster"},
		{": 405 ", "it is no xDS server at this path: see " + t.section + ".address"},
		{"redirects are not followed", "set " + t.section + ".address to where it redirects"},
		{"is no JSON object", "it is no xDS server at this path: see " + t.section + ".address"},
		{"no answer within", "see whether it hangs, and upstream.rest.timeout"},
		{"unable to resolve", "give the relay the type's descriptor in upstream.rest.descriptors"},
	} {
		if strings.Contains(failed, one.says) {
			return one.do
		}
	}
	return t.hints.Explain(failed, false)
}

// secureHTTP is a connection on which HTTP/1.1 is spoken.
func (t *target) secureHTTP(ctx context.Context, within time.Duration) (net.Conn, error) {
	raw, err := t.dial(ctx, within)
	if err != nil {
		return nil, err
	}
	c, err := t.tls(ctx)
	if err == nil {
		c.NextProtos = []string{"http/1.1"}
		conn := tls.Client(raw, c)
		if err = conn.HandshakeContext(ctx); err == nil {
			return conn, nil
		}
	}
	raw.Close()
	return nil, err
}
