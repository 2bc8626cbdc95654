package downstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"mime"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/hop"
	"github.com/xds-relay/xds-relay/internal/readable"
	"github.com/xds-relay/xds-relay/internal/service"
	"github.com/xds-relay/xds-relay/internal/xdsjson"
)

// REST is for clients that poll: POST /v3/discovery:clusters and the like, with a DiscoveryRequest in JSON (protocol.md
// §13). A poll is a unary call, as in fetch.go; pollers.go has what stays between two polls.

// RESTConfig is the part of the configuration that clients need that poll.
type RESTConfig struct {
	// Hold is how long an answer waits for a change, unless the client asks for another time (REST-8).
	Hold time.Duration
	// InterestTTL is how long the interest of a poll lasts (REST-9), and MaxPollers how many are remembered.
	InterestTTL time.Duration
	MaxPollers  int
	// ProtoNames calls fields as in the proto.
	ProtoNames bool
}

// maxHold bounds how long a client may have an answer wait.
const maxHold = time.Minute

// rest serves clients that poll.
type rest struct {
	server  *Server
	http    *http.Server
	types   map[string]cache.TypeURL // by path
	pollers pollers
	bodies  bodies
	writers map[bool]*xdsjson.Writer // by whether names are as in the proto
	once    sync.Once
	down    chan struct{} // closed when it is shut down
}

func newREST(s *Server) *rest {
	r := &rest{server: s, types: make(map[string]cache.TypeURL), down: make(chan struct{})}
	r.pollers.init(s)
	r.bodies.server = s
	for _, of := range service.All() {
		if path := of.RESTPath(); path != "" {
			r.types[path] = of.Type
		}
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	r.http = &http.Server{
		Handler:           r,
		ReadHeaderTimeout: handshakeLimit,
		IdleTimeout:       maxIdle,
		MaxHeaderBytes:    maxHeaders,
		Protocols:         &protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: int(min(s.config.MaxStreams, maxPollsOfOne)), MaxReceiveBufferPerConnection: window, MaxReceiveBufferPerStream: window},
		ConnContext:       withConn,
		ErrorLog:          log.New(httpErrors{s}, "", 0),

		DisableGeneralOptionsHandler: true, // OPTIONS * is no path of a type either
	}
	return r
}

const (
	// maxIdle is how long a client that polls may leave its connection alone.
	maxIdle = 10 * time.Minute
	// maxPollsOfOne is how many polls a connection may have open at once over HTTP/2.
	maxPollsOfOne = 1000
)

// ServeREST accepts clients that poll on a listener until Close. secure returns how the next connection is secured; nil:
// it is not. messages are known in answers.
func (s *Server) ServeREST(l net.Listener, secure func() *tls.Config, messages *readable.Set) error {
	r := s.rest
	r.writers = map[bool]*xdsjson.Writer{false: xdsjson.NewWriter(messages, false), true: xdsjson.NewWriter(messages, true)}
	d := restDoor{s.doors.add(l), secure}
	defer d.Close() // also if the server is closed already
	if err := r.http.Serve(d); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// stopAccepting closes the listener, and waits for the polls that are open on a goroutine of its own.
func (r *rest) stopAccepting() {
	r.once.Do(func() {
		go func() {
			defer close(r.down)
			_ = r.http.Shutdown(context.Background()) // without a deadline it cannot fail, and close ends it
		}()
	})
}

// close ends what is left, and returns when nothing is.
func (r *rest) close(within time.Duration) {
	select {
	case <-r.down:
	case <-time.After(within):
	}
	_ = r.http.Close()
	<-r.down
	r.pollers.close()
}

// restDoor is a door for clients that poll.
type restDoor struct {
	net.Listener
	secure func() *tls.Config
}

// Accept implements net.Listener. The HTTP server makes the handshake, and bounds its time.
func (d restDoor) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	of := c.(*conn)
	of.doors.settled(of)
	if config := d.secure(); config != nil {
		return tls.Server(of, config), nil
	}
	return of, nil
}

// restConn is the connection of a poll.
type restConn struct {
	*conn
	once  sync.Once
	info  credentials.AuthInfo // nil in plaintext
	err   error                // why its client has to wait
	until time.Time            // when its client is to take another one; zero: never
}

type restConnKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	return context.WithValue(ctx, restConnKey{}, &restConn{conn: c.(*conn)})
}

// identify takes in what the handshake has shown, once.
func (c *restConn) identify(s *Server, state *tls.ConnectionState) error {
	c.once.Do(func() {
		if state != nil {
			info := credentials.TLSInfo{State: *state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
			c.conn.proof = proofOf(info)
			info.SPIFFEID = spiffeID(c.conn.proof)
			c.info = info
		}
		c.until, _ = s.lifetime(c.conn, time.Now())
		c.err = c.doors.identified(c.conn, c.info)
	})
	return c.err
}

// spiffeID is the SPIFFE ID of a certificate by the rule that gRPC has, or nil.
func spiffeID(leaf *x509.Certificate) *url.URL {
	if leaf == nil || len(leaf.URIs) != 1 {
		return nil
	}
	const longest, longestDomain = 2048, 255
	id := leaf.URIs[0]
	switch {
	case id.Scheme != "spiffe", id.Opaque != "", id.User.Username() != "":
		return nil
	case id.Host == "", id.Path == "":
		return nil
	case len(id.String()) > longest, len(id.Host) > longestDomain:
		return nil
	}
	return id
}

// peer says who polls.
func (c *restConn) peer(header http.Header, config *session.Config) session.Peer {
	headers := make(map[string][]string, len(header))
	for name, values := range header {
		headers[strings.ToLower(name)] = values
	}
	p := session.Peer{Address: PeerName(c.RemoteAddr()), Via: hop.Via(headers[hop.ViaHeader])}
	p.Sent(headers, config)
	identify(&p, c.RemoteAddr(), c.info, config.Relays)
	p.Principal = principal(p.Identity, c.conn)
	return p
}

// httpErrors gets what the HTTP server has to say: failed handshakes, above all.
type httpErrors struct{ *Server }

// Write implements io.Writer.
func (e httpErrors) Write(line []byte) (int, error) {
	e.full.warn(e.log, "rest", "downstream.rest.listen: a client could not be served", "err", strings.TrimSpace(string(line)))
	return len(line), nil
}

// refusal is why a poll is not answered as the client wishes (REST-7).
type refusal struct {
	code    int
	message string
	end     *session.End // nil: it is not of the protocol
}

// refused is an End as HTTP has it.
func refused(end *session.End) *refusal { return &refusal{codeOf(end.Reason), end.Message, end} }

// codeOf is the HTTP status of a reason.
func codeOf(reason session.Reason) int {
	switch reason {
	case session.BadRequest, session.NodeChanged:
		return http.StatusBadRequest
	case session.Forbidden:
		return http.StatusForbidden
	case session.OverLimit:
		return http.StatusRequestEntityTooLarge
	case session.HalfSent:
		return http.StatusRequestTimeout
	case session.Overcrowded, session.NamesFull, session.StreamsFull, session.DisplacedStream, session.DisplacedNames, session.DisplacedGroup, session.DisplacedType:
		return http.StatusTooManyRequests
	case session.Looped:
		return http.StatusLoopDetected
	case session.RefusedUpstream:
		return http.StatusBadGateway
	case bug:
		return http.StatusInternalServerError
	}
	return http.StatusServiceUnavailable
}

// PollCodes lists the statuses that polls are answered with, for an Observer.
func PollCodes() []int {
	return []int{
		http.StatusOK, http.StatusNotModified, http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusRequestTimeout,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusLoopDetected,
	}
}

// ServeHTTP implements http.Handler.
func (r *rest) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	// The HTTP server reads on what is refused unread, and would wait for it for ever. A request that is read has its own time.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyWithin)) // an error means that the client is gone
	t, known := r.types[req.URL.Path]
	if !known {
		r.refuse(w, "", &refusal{code: http.StatusNotFound, message: "xds-relay: no such path; types are polled at /v3/discovery:clusters, :endpoints, :listeners, :routes, :scoped-routes, :secrets, :runtime and :extension_configs"})
		return
	}
	code, no := r.answer(w, req, t)
	if no != nil {
		code = no.code
		r.refuse(w, t, no)
	}
	r.server.observer.ClientPoll(t, code)
}

// answer answers a poll, or says why not.
func (r *rest) answer(w http.ResponseWriter, req *http.Request, t cache.TypeURL) (code int, no *refusal) {
	s := r.server
	c := req.Context().Value(restConnKey{}).(*restConn)
	defer func() {
		if p := recover(); p != nil {
			s.observer.ClientPanic()
			s.log.Error("bug: a poll panicked", "type", t, "peer", PeerName(c.RemoteAddr()), "err", fmt.Sprint(p), "stack", string(debug.Stack()))
			no = refused(panicEnd())
		}
	}()
	if no := check(w, req); no != nil {
		return 0, no
	}
	if err := c.identify(s, req.TLS); err != nil {
		return 0, &refusal{code: http.StatusTooManyRequests, message: err.Error()}
	}
	config := s.now.Load()
	q := &poll{t: t, conn: c.conn, peer: c.peer(req.Header, &config.Config)}
	if q.body, no = r.bodies.read(w, req, q.peer.Holder); no != nil {
		return 0, no
	}
	defer r.bodies.give(q)
	q.hold = config.REST.Hold
	if wait, asks := prefers(req.Header); asks {
		q.hold = min(wait, maxHold)
		w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(q.hold/time.Second)))
	}
	if !c.until.IsZero() && time.Now().After(c.until) {
		w.Header().Set("Connection", "close")
	}
	a, end := s.poll(req.Context(), q)
	if end != nil {
		switch end.Reason {
		case session.BadRequest, session.OverLimit:
			c.conn.faulted(1)
		}
		return 0, refused(end)
	}
	r.mayStall(w)
	if a.unchanged {
		w.WriteHeader(http.StatusNotModified)
		c.conn.acknowledged()
		return http.StatusNotModified, nil
	}
	size, no := r.write(w, a.response, config)
	r.pollers.sent(a.by, size)
	return http.StatusOK, no
}

// check refuses what is not a request in JSON.
func check(w http.ResponseWriter, req *http.Request) *refusal {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return &refusal{code: http.StatusMethodNotAllowed, message: "xds-relay: use POST, with a DiscoveryRequest in JSON"}
	}
	media, _, err := mime.ParseMediaType(cmp.Or(req.Header.Get("Content-Type"), "application/json"))
	if err != nil || media != "application/json" {
		return &refusal{code: http.StatusUnsupportedMediaType, message: "xds-relay: the content type has to be application/json"}
	}
	if req.Header.Get("Origin") != "" { // a browser's; it may have found the address under a name of the page's own (DNS rebinding)
		return &refusal{code: http.StatusForbidden, message: "xds-relay: web pages are not served"}
	}
	if encoding := req.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return &refusal{code: http.StatusUnsupportedMediaType, message: "xds-relay: compressed requests are refused; send them as they are"}
	}
	return nil
}

// prefers is the time in Prefer: wait=N (RFC 7240).
func prefers(h http.Header) (wait time.Duration, ok bool) {
	for _, line := range h.Values("Prefer") {
		for preference := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(preference, "=")
			value, _, _ = strings.Cut(value, ";")
			seconds, err := strconv.ParseUint(strings.Trim(value, ` "`), 10, 31)
			if strings.EqualFold(strings.TrimSpace(name), "wait") && err == nil {
				return time.Duration(seconds) * time.Second, true
			}
		}
	}
	return 0, false
}

// mayStall says how long an answer may wait for the client. The connection keeps the deadline of the answer before.
func (r *rest) mayStall(w http.ResponseWriter) {
	var deadline time.Time
	if stall := r.server.now.Load().StallTimeout; stall > 0 {
		deadline = time.Now().Add(stall)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(deadline) // an error means that the client is gone
}

// write answers with a response, of so many bytes.
func (r *rest) write(w http.ResponseWriter, resp *session.Response, config *ServerConfig) (size int, no *refusal) {
	writer := r.writers[config.REST.ProtoNames]
	resources := make([][]byte, 0, len(resp.Resources))
	for _, res := range resp.Resources {
		body, remember := res.Body(), !res.DoNotCache
		if ttl, ok := resp.TTL(res); ok {
			head, tail := session.Limited(false, len(res.Content()), ttl)
			body, remember = append(append(head, res.Content()...), tail...), false
		}
		text, err := writer.Resource(body, remember)
		if err != nil {
			r.server.full.warn(r.server.log, "rest json", "downstream.rest: a resource cannot be sent to clients that poll", "type", resp.Type, "name", res.Name, "err", err)
			return 0, &refusal{code: http.StatusInternalServerError, message: fmt.Sprintf("xds-relay: %q: %v", res.Name, err)}
		}
		resources = append(resources, text)
	}
	parts := writer.Response(xdsjson.Head{Version: resp.Version, TypeURL: string(resp.Type), Nonce: resp.Nonce, Identifier: resp.Identifier}, resources)
	for _, part := range parts {
		size += len(part)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(size))
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return size, nil // the client is gone
		}
	}
	r.server.observer.ClientResponse(resp.Type, len(resp.Resources), 0, size)
	return size, nil
}

// refuse answers that a poll is refused.
func (r *rest) refuse(w http.ResponseWriter, t cache.TypeURL, no *refusal) {
	h := w.Header()
	if end := no.end; end != nil {
		if refusals[end.Reason] {
			r.server.full.warn(r.server.log, "rest "+string(end.Reason), "a client that polls is refused", "type", t, "reason", end.Reason, "err", no.message)
		}
		if ofConnection(end.Reason) {
			h.Set("Connection", "close")
		}
	}
	r.mayStall(w)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	switch no.code {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h.Set("Retry-After", "1") // second
	case http.StatusRequestEntityTooLarge, http.StatusRequestTimeout:
		h.Set("Connection", "close") // else what follows would be waited for
	}
	w.WriteHeader(no.code)
	_, _ = w.Write([]byte(no.message + "\n")) // an error means that the client is gone
}
