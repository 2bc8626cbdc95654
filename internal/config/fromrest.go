package config

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

// RESTUpstream is how a control plane is asked whose address is rest+https://host/.
type RESTUpstream struct {
	// Poll is how often it is asked for each type of each group, give or take a tenth;
	// at least 100ms. What clients newly ask for is asked for at once (REST-11).
	// Default: 5s.
	Poll time.Duration `yaml:"poll"`

	// Timeout is how long an answer may take. One that takes longer counts as a failure
	// of the control plane (REST-13).
	// Default: 5s.
	Timeout time.Duration `yaml:"timeout"`

	// Wait is how much longer the control plane may put off its answer until something
	// changes, in whole seconds up to 5m: it is asked to by Prefer: wait=N. When
	// it has waited in vain, it is asked again at once. Half of max_connections may wait at
	// a time; beyond, it is polled. 0 is not at all (REST-14).
	// Default: 0s.
	Wait time.Duration `yaml:"wait"`

	// Absent says what becomes of a resource that was there, and is not in an answer any
	// more: keep, as Envoy does, or remove. Listeners, Clusters and scoped routes are
	// removed in any case, and what was never there does not exist (REST-12).
	// Default: keep.
	Absent Absent `yaml:"absent"`

	// Descriptors are files with types that Envoy's API does not have, as protoc
	// --include_imports --descriptor_set_out makes them. An answer with a type or field
	// that is not known is refused (REST-16).
	// Default: [].
	Descriptors []string `yaml:"descriptors"`
}

// Absent is the type of upstream.rest.absent.
type Absent string

// The values of Absent.
const (
	AbsentKeep   Absent = "keep"
	AbsentRemove Absent = "remove"
)

// Values lists the values that may be written.
func (Absent) Values() []string { return []string{"keep", "remove"} }

// restScheme begins the addresses of control planes that are asked over REST.
const restScheme = "rest+"

// RESTURL is the URL in an address rest+https://host/ or rest+http://host/; false: it is another address.
func RESTURL(address string) (u string, ok bool) { return strings.CutPrefix(address, restScheme) }

// OverREST reports whether the control plane is asked over REST, and whether by HTTPS.
func (f *Fallback) OverREST() (rest, secure bool) {
	u, ok := RESTURL(f.Address)
	return ok, ok && strings.HasPrefix(u, "https:")
}

// InProcess reports whether the relay reads the files, or asks over REST, so that it serves the resources to itself.
func (f *Fallback) InProcess() bool {
	_, files := FilesPath(f.Address)
	rest, _ := f.OverREST()
	return files || rest
}

// checkRESTURL checks an address that begins with rest+, and tells whether nobody else can read what is said.
func checkRESTURL(s string) (private bool, err error) {
	text, _ := RESTURL(s)
	u, err := url.Parse(text)
	const form = "write rest+https://host:port/"
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https":
		return false, fmt.Errorf("%q is no URL of https or http; %s", clip(s), form)
	case u.User != nil:
		return false, fmt.Errorf("the URL has a user or password in it; %s, and set headers", form)
	case u.Hostname() == "" || strings.ContainsAny(u.Host, ", \t"):
		return false, fmt.Errorf("%q has no host; %s", clip(s), form)
	case strings.ContainsAny(text, "?#"):
		return false, fmt.Errorf("%q has a query or fragment; %s, which v3/discovery:clusters is added to", clip(s), form)
	case strings.Contains(u.Path, "discovery:"):
		return false, fmt.Errorf("%q has the path of a type; %s, which v3/discovery:clusters is added to", clip(s), form)
	}
	if port := u.Port(); port != "" {
		if _, _, err := hostPort(net.JoinHostPort(u.Hostname(), port), 1); err != nil {
			return false, err
		}
	}
	return u.Scheme == "https" || isLoopback(u.Hostname()), nil
}

// overREST refuses what would not be as it is written.
func (v *validator) overREST(e *Entry) {
	_, secure := e.OverREST()
	switch {
	case secure && e.Insecure && !e.TLS.Enabled():
		v.fail(e.Section+".insecure", "remove it, or write rest+http://", "only permits plaintext, and %q is not", clip(e.Address))
	case !secure && e.TLS.Enabled():
		v.fail(e.Section+".address", fmt.Sprintf("write rest+https://, or remove %s.tls", e.Section), "%q is plaintext, but %s.tls is set", clip(e.Address), e.Section)
	}
	if e.TLS.ALPN == ALPNLenient {
		v.fail(e.Section+".tls.alpn", "remove it", "says nothing over REST, which does not need HTTP/2")
	}
}

// restSettings checks upstream.rest.
func (v *validator) restSettings() {
	r := &v.c.Upstream.REST
	const least, longest = 100 * time.Millisecond, 5 * time.Minute
	if r.Poll < least {
		v.fail("upstream.rest.poll", "5s suits most control planes", "must be at least %v, is %v", least, r.Poll)
	}
	v.positive("upstream.rest.timeout", int64(r.Timeout))
	if r.Wait%time.Second != 0 || r.Wait > longest {
		v.fail("upstream.rest.wait", "for example 30s, or 0s for answers at once", "must be whole seconds, up to %v, is %v", longest, r.Wait)
	}
}

// unusedREST: settings that no address makes use of.
func (v *validator) unusedREST() {
	for _, e := range v.c.Upstream.AllEntries() {
		if rest, _ := e.OverREST(); rest {
			return
		}
	}
	for _, key := range []string{"poll", "timeout", "wait", "absent", "descriptors"} {
		if v.written("upstream.rest." + key) {
			v.fail("upstream.rest."+key, "write the address of a control plane that speaks REST as rest+https://host/", "has no effect: no control plane is asked over REST")
		}
	}
}
