package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Validate checks what types cannot: ranges, addresses, and fields that must
// or must not come together. It reports all mistakes, each with the place the
// value was written. It opens no file and no socket.
func (c *Config) Validate() error {
	v := &validator{c: c}
	if c.APIVersion != APIVersion {
		v.fail("apiVersion", "write apiVersion: "+APIVersion, "%q is not a format this version reads", clip(c.APIVersion))
		return join(v.errs)
	}
	v.fields(reflect.ValueOf(c).Elem(), "")
	v.instance()
	v.upstream()
	v.downstream()
	v.groups()
	v.headers()
	v.passedThrough()
	v.types()
	v.timers()
	v.snapshot()
	v.guard()
	v.admin()
	v.webhook()
	v.metrics()
	v.tracing()
	return join(v.errs)
}

type validator struct {
	c    *Config
	errs []*Error
}

func (v *validator) fail(key, hint, format string, args ...any) {
	v.errs = append(v.errs, v.c.prov.errorFor(key, fmt.Sprintf(format, args...), hint))
}

// fields checks what holds for every field of a type: closed sets of values,
// and nothing negative.
func (v *validator) fields(val reflect.Value, key string) {
	if e, ok := val.Interface().(enum); ok {
		if allowed := e.Values(); !slices.Contains(allowed, val.String()) {
			allowed = slices.DeleteFunc(slices.Clone(allowed), func(s string) bool { return s == "" })
			v.fail(key, "use one of "+strings.Join(allowed, ", "), "unknown value %q", clip(val.String()))
		}
		return
	}
	switch val.Kind() {
	case reflect.Struct:
		for i := range val.NumField() {
			if name := yamlName(val.Type().Field(i)); name != "" {
				v.fields(val.Field(i), child(key, name))
			}
		}
	case reflect.Pointer:
		if !val.IsNil() {
			v.fields(val.Elem(), key)
		}
	case reflect.Slice:
		for i := range val.Len() {
			v.fields(val.Index(i), fmt.Sprintf("%s[%d]", key, i))
		}
	case reflect.Int, reflect.Int64:
		if val.Int() < 0 {
			v.fail(key, "", "must not be negative, is %v", val.Interface())
		}
	}
}

// positive refuses zero where it would switch off something that must be there.
// Negative values have been reported by fields.
func (v *validator) positive(key string, n int64) {
	if n == 0 {
		v.fail(key, "", "must be more than 0")
	}
}

func (v *validator) instance() {
	const limit = 253 // a host name has no more
	name := v.c.Instance
	bad := strings.IndexFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || r == ',' // it travels in a list in an ASCII header
	})
	if bad >= 0 || len(name) > limit {
		v.fail("instance", fmt.Sprintf("use at most %d printable ASCII characters, no space, no comma", limit), "%q cannot be a name in a header", clip(name))
	}
}

func (v *validator) upstream() {
	u := &v.c.Upstream
	v.controlPlanes()
	if u.Node.ID == "" {
		v.fail("upstream.node.id", "remove the line to use the default, xds-relay", "must not be empty: control planes identify a client by it")
	}

	v.positive("upstream.backoff.initial", int64(u.Backoff.Initial))
	if !(u.Backoff.Factor >= 1) || math.IsInf(u.Backoff.Factor, 0) { // so written, NaN fails too
		v.fail("upstream.backoff.factor", "", "must be at least 1, is %v", u.Backoff.Factor)
	}
	if !(u.Backoff.Jitter >= 0 && u.Backoff.Jitter <= 1) {
		v.fail("upstream.backoff.jitter", "", "must be from 0 to 1, is %v", u.Backoff.Jitter)
	}
	v.ordered("upstream.backoff.initial", u.Backoff.Initial, "upstream.backoff.max", u.Backoff.Max)
	const minKeepalive = 10 * time.Second // grpc-go raises less to this in silence
	if u.Keepalive > 0 && u.Keepalive < minKeepalive {
		v.fail("upstream.keepalive", "use 0 for none, and 5m or more unless the server permits more frequent pings", "must be 0 or at least %v, is %v", minKeepalive, u.Keepalive)
	}
	v.messageSize("upstream.max_receive_bytes", u.MaxReceiveBytes)
	v.messageSize("upstream.max_request_bytes", u.MaxRequestBytes)
	if longest := 256 + v.c.Downstream.MaxNameBytes; u.MaxRequestBytes > 0 && u.MaxRequestBytes < longest {
		v.fail("upstream.max_request_bytes", "it has to hold a node and one name of downstream.max_name_bytes", "must be at least %v, is %v", longest, u.MaxRequestBytes)
	}
	if u.MaxStreamsPerConnection < 2 {
		v.fail("upstream.max_streams_per_connection", "one of them is kept free for upstream.health_check", "must be at least 2, is %d", u.MaxStreamsPerConnection)
	}
	v.positive("upstream.max_connections", int64(u.MaxConnections))
	v.positive("upstream.failback_after", int64(u.FailbackAfter))
	v.typeNames("upstream.types", u.Types)
	v.typeNames("upstream.prefetch_except", u.PrefetchExcept)
	v.positive("upstream.files.max_bytes", int64(u.Files.MaxBytes))
	v.restSettings()
}

// controlPlanes checks the address and the fallbacks of each source alike.
func (v *validator) controlPlanes() {
	for _, s := range v.c.Upstream.Sources() {
		v.lastResort(s)
		var seen []string
		for _, e := range s.Entries {
			v.controlPlane(e.Section, e.Address, e.Insecure, e.TLS)
			if _, files := FilesPath(e.Address); files {
				v.fromFiles(&e, s.Name == "" && e.Section == s.Section)
			}
			if rest, _ := e.OverREST(); rest {
				v.overREST(&e)
			}
			if slices.Contains(seen, e.Address) {
				v.fail(e.Section+".address", "remove one of the two", "%q is listed twice", clip(e.Address))
			}
			seen = append(seen, e.Address)
		}
	}
	v.byType()
}

func (v *validator) controlPlane(section, address string, permitted bool, tls ClientTLS) {
	local, err := checkTarget(address)
	switch {
	case err != nil:
		v.fail(section+".address", "", "%v", err)
	case tls.Enabled() && permitted:
		v.fail(section+".insecure", "remove one of the two; there is no way to skip the check of certificates", "only permits plaintext, but %s.tls is set", section)
	case !local && !tls.Enabled() && !permitted:
		v.fail(section+".address", fmt.Sprintf("set %[1]s.tls, or %[1]s.insecure: true if the network is trusted", section), "%q is not on this host and would be spoken to in plaintext", clip(address))
	}
	v.together(section+".tls", tls.Cert, tls.Key)
	v.clientSPIFFE(section+".tls", tls)
	if _, rest := RESTURL(address); tls.ALPN == ALPNLenient && !tls.Enabled() && !rest {
		v.fail(section+".tls.alpn", fmt.Sprintf("set %[1]s.tls.ca, or %[1]s.tls.server_name for the system's roots", section), "says nothing without TLS")
	}
}

func (v *validator) downstream() {
	d := &v.c.Downstream
	if len(d.Listen) == 0 {
		v.fail("downstream.listen", `for example ["127.0.0.1:18000"]`, "needs at least one address")
	}
	if d.TLS.Enabled() && d.Insecure {
		v.fail("downstream.insecure", "remove one of the two", "only permits plaintext, but downstream.tls is set")
	}
	for i, addr := range d.Listen {
		key := fmt.Sprintf("downstream.listen[%d]", i)
		if _, _, err := SplitListen(addr); err != nil {
			v.fail(key, "", "%v", err)
			continue
		}
		if slices.ContainsFunc(d.Listen[:i], clashing(addr)) {
			v.fail(key, "", "%q is listed twice", addr)
		}
		v.notPlaintext(key, addr)
	}
	v.together("downstream.tls", d.TLS.Cert, d.TLS.Key)
	v.serverSPIFFE("downstream.tls", d.TLS)
	if serves := d.TLS.Cert+d.TLS.Key != "" || d.TLS.SPIFFE.Enabled(); d.TLS.ClientCA != "" && !serves {
		v.fail("downstream.tls.client_ca", "set downstream.tls.cert and downstream.tls.key", "needs a certificate of the server too")
	}
	v.rest(d)
	v.relays(d.Relays)
	v.messageSize("downstream.max_request_bytes", d.MaxRequestBytes)
	v.inflight(d)
	v.positive("downstream.max_name_bytes", int64(d.MaxNameBytes))
	v.positive("downstream.max_names_per_stream", int64(d.MaxNamesPerStream))
	v.positive("downstream.max_streams_per_connection", int64(d.MaxStreamsPerConnection))
	if int64(d.MaxStreamsPerConnection) > math.MaxUint32 {
		v.fail("downstream.max_streams_per_connection", "", "must fit HTTP/2's 32 bits")
	}
	if d.RequestRate > 0 && d.RequestBurst == 0 {
		v.fail("downstream.request_burst", "it is what a stream may send at once", "must be more than 0 where downstream.request_rate is")
	}
	const minResponse = Bytes(512) // what names a response and one resource
	if d.MaxResponseBytes > 0 && d.MaxResponseBytes < minResponse {
		v.fail("downstream.max_response_bytes", "use 0 for no limit, and 4MiB for gRPC's xDS clients", "must be 0 or at least %v, is %v", minResponse, d.MaxResponseBytes)
	}
	if d.MaxResponseBytes > math.MaxInt32 {
		v.fail("downstream.max_response_bytes", "", "must be less than 2GiB, is %v", d.MaxResponseBytes)
	}
	if d.KeepaliveMin < time.Second {
		v.fail("downstream.keepalive_min", "5s suits all clients", "must be at least 1s, is %v", d.KeepaliveMin)
	}
	if d.MaxConnectionAge > 0 && d.MaxConnectionAge < time.Second {
		v.fail("downstream.max_connection_age", "use 0 for no limit", "must be 0 or at least 1s, is %v", d.MaxConnectionAge)
	}
	v.typeNames("downstream.resend_on_reconnect_types", d.ResendOnReconnectTypes)
	v.typeNames("downstream.never_synthesize_removal", d.NeverSynthesizeRemoval)
	v.typeNames("downstream.ready_types", d.ReadyTypes)
	for i, name := range d.ReadyTypes {
		url := typeURLOf(name)
		asked := func(other string) bool { return typeURLOf(other) == url }
		types := v.c.Upstream.Types
		if len(types) == 0 || url == "" || v.c.Upstream.SourceOf(url) > 0 {
			continue
		}
		if !slices.ContainsFunc(types, asked) {
			v.fail(fmt.Sprintf("downstream.ready_types[%d]", i), "add it there, or remove it here: the relay would never be ready", "%q is not among upstream.types", clip(name))
		}
	}
}

// maxHold is how long an answer over REST waits for a change at most (REST-8).
const maxHold = time.Minute

// rest checks what clients that poll are served by.
func (v *validator) rest(d *Downstream) {
	r := &d.REST
	if r.Hold > maxHold {
		v.fail("downstream.rest.hold", "", "must be at most %v, is %v", maxHold, r.Hold)
	}
	v.positive("downstream.rest.interest_ttl", int64(r.InterestTTL))
	v.positive("downstream.rest.max_pollers", int64(r.MaxPollers))
	const key = "downstream.rest.listen"
	if r.Listen == "" {
		return
	}
	if _, _, err := SplitListen(r.Listen); err != nil {
		v.fail(key, "", "%v", err)
		return
	}
	v.notPlaintext(key, r.Listen)
	if slices.ContainsFunc(d.Listen, clashing(r.Listen)) {
		v.fail(key, "use another port for one of the two", "%q is also in downstream.listen, which serves gRPC", r.Listen)
	}
}

// notPlaintext refuses an address that other hosts reach, unless it is secured or meant so.
func (v *validator) notPlaintext(key, addr string) {
	d := &v.c.Downstream
	secured := d.TLS.Enabled() || d.Insecure
	if !secured && !isLocalListen(addr) {
		v.fail(key, "set downstream.tls, or downstream.insecure: true if the network is trusted", "%q can be reached from other hosts and would be plaintext", addr)
	}
}

// inflight checks what requests that are not taken in may take.
func (v *validator) inflight(d *Downstream) {
	const key = "downstream.max_inflight_bytes"
	v.positive(key, int64(d.MaxInflightBytes))
	if least := d.EffectiveMaxInflight(); d.MaxInflightBytes > 0 && d.MaxInflightBytes < least && v.written(key) {
		v.fail(key, "leave it out, or lower downstream.max_request_bytes", "must be at least %v, %d times downstream.max_request_bytes, is %v", least, inflightRequests, d.MaxInflightBytes)
	}
}

// relays checks the identities of clients that are relays.
func (v *validator) relays(identities []string) {
	for i, id := range identities {
		key := fmt.Sprintf("downstream.relays[%d]", i)
		switch scheme, name, _ := strings.Cut(id, ":"); {
		case scheme == "" || name == "":
			v.fail(key, `write it as the log shows it: spiffe://…, dns:NAME or subject:CN=NAME`, "%q is no identity", clip(id))
		case slices.Contains(identities[:i], id):
			v.fail(key, "", "%q is listed twice", clip(id))
		}
	}
	if len(identities) > 0 && !v.c.Downstream.TLS.AsksClients() {
		v.fail("downstream.relays", "set downstream.tls.client_ca", "relays are known by their certificates, and clients are not asked for any")
	}
}

func (v *validator) types() {
	seen := map[string]int{}
	for i, t := range v.c.Types {
		key := fmt.Sprintf("types[%d].type_url", i)
		url, ok := v.typeName(key, t.TypeURL)
		if !ok {
			continue
		}
		if first, dup := seen[url]; dup {
			v.fail(key, "merge the two entries", "%q is the same type as types[%d]", clip(t.TypeURL), first)
			continue
		}
		seen[url] = i
	}
}

func (v *validator) timers() {
	t := &v.c.Timers
	v.positive("timers.dne_timeout", int64(t.DNETimeout))
	v.positive("timers.dne_timeout_explicit", int64(t.DNETimeoutExplicit))
	v.ordered("timers.settle", t.Settle, "timers.settle_cap", t.SettleCap)
	v.positive("timers.ack_timeout", int64(t.AckTimeout))
}

func (v *validator) snapshot() {
	s := &v.c.Cache.Snapshot
	v.positive("cache.snapshot.interval", int64(s.Interval))
	v.positive("cache.snapshot.max_bytes", int64(s.MaxBytes))
	if s.Dir == "" && s.KeyFile != "" {
		v.fail("cache.snapshot.key_file", "set cache.snapshot.dir", "there is no snapshot to encrypt")
	}
	v.typeNames("cache.snapshot.exclude_types", s.ExcludeTypes)
}

func (v *validator) guard() {
	g := &v.c.Cache.MassRemovalGuard
	if !(g.Fraction >= 0 && g.Fraction < 1) { // so written, NaN fails too
		v.fail("cache.mass_removal_guard.fraction", "use 0.5, or 0 for no guard", "must be at least 0 and less than 1, is %v", g.Fraction)
	}
	v.positive("cache.mass_removal_guard.min", int64(g.Min))
	v.positive("cache.mass_removal_guard.within", int64(g.Within))
	v.positive("cache.mass_removal_guard.hold", int64(g.Hold))
}

func (v *validator) admin() {
	addr := v.c.Admin.Listen
	if addr == "" {
		return
	}
	if _, _, err := SplitListen(addr); err != nil {
		v.fail("admin.listen", "", "%v", err)
		return
	}
	if !isLocalListen(addr) {
		v.fail("admin.listen", "use 127.0.0.1:18001 or unix:///path", "%q can be reached from other hosts, and the endpoint has no authentication", addr)
	}
	if slices.ContainsFunc(v.c.Downstream.Listen, clashing(addr)) {
		v.fail("admin.listen", "use another port for one of the two", "%q is also in downstream.listen", addr)
	}
	if clashing(addr)(v.c.Downstream.REST.Listen) {
		v.fail("admin.listen", "use another port for one of the two", "%q is also downstream.rest.listen", addr)
	}
}

func (v *validator) metrics() {
	addr := v.c.Metrics.Listen
	if addr == "" {
		return
	}
	if _, _, err := SplitListen(addr); err != nil {
		v.fail("metrics.listen", "", "%v", err)
		return
	}
	const hint = "use another port for one of the two"
	switch {
	case slices.ContainsFunc(v.c.Downstream.Listen, clashing(addr)):
		v.fail("metrics.listen", hint, "%q is also in downstream.listen", addr)
	case clashing(addr)(v.c.Downstream.REST.Listen):
		v.fail("metrics.listen", hint, "%q is also downstream.rest.listen", addr)
	case clashing(addr)(v.c.Admin.Listen):
		v.fail("metrics.listen", hint+", or leave metrics.listen out: admin.listen has probes and metrics, too", "%q is also admin.listen", addr)
	}
}

// written reports whether the value of key did not come from the defaults.
func (v *validator) written(key string) bool {
	if v.c.prov == nil {
		return false
	}
	_, ok := v.c.prov.at[key]
	return ok
}

// ordered refuses low > high, and blames the one that somebody wrote.
func (v *validator) ordered(lowKey string, low time.Duration, highKey string, high time.Duration) {
	if high < 0 || low <= high { // a negative one has been reported by fields
		return
	}
	if v.written(lowKey) && !v.written(highKey) {
		v.fail(lowKey, "", "%v is more than %s, %v", low, highKey, high)
	} else {
		v.fail(highKey, "", "%v is less than %s, %v", high, lowKey, low)
	}
}

// together refuses a certificate without its key and the reverse.
func (v *validator) together(section, cert, key string) {
	switch {
	case cert != "" && key == "":
		v.fail(section+".cert", "set "+section+".key", "needs its private key too")
	case cert == "" && key != "":
		v.fail(section+".key", "set "+section+".cert", "needs its certificate too")
	}
}

// messageSize bounds a message to what gRPC implementations agree on.
func (v *validator) messageSize(key string, n Bytes) {
	v.positive(key, int64(n))
	if n > math.MaxInt32 {
		v.fail(key, "", "must be less than 2GiB, is %v", n)
	}
}

func (v *validator) typeNames(key string, names []string) {
	seen := map[string]bool{}
	for i, name := range names {
		item := fmt.Sprintf("%s[%d]", key, i)
		url, ok := v.typeName(item, name)
		if ok && seen[url] {
			v.fail(item, "", "%q is listed twice", clip(name))
		}
		seen[url] = true
	}
}

func typeURLOf(name string) string {
	url, _ := TypeURL(name)
	return url
}

func (v *validator) typeName(key, name string) (url string, ok bool) {
	url, ok = TypeURL(name)
	switch {
	case name == "":
		v.fail(key, "for example CDS or "+typePrefix+shortNames["CDS"], "is missing")
	case !ok:
		v.fail(key, "for example CDS or "+typePrefix+shortNames["CDS"], "%q is neither a type URL nor a short name", clip(name))
	}
	return url, ok
}
