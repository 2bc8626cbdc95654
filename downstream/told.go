package downstream

import (
	"context"
	"log/slog"
	"strings"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/logging"
)

// The log lines about client streams. Each is about one client, of which there may be thousands:
// the log samples equal lines (internal/logging), and lines about single requests and responses
// are for debugging. No line has bodies, or versions of secrets: whoever can guess a weak secret
// could check the guess.

// refusals are the reasons for which a client is not served that need attention: at the client,
// or at the relay's limits.
var refusals = map[session.Reason]bool{
	session.BadRequest: true, session.OverLimit: true, session.NodeChanged: true, session.Forbidden: true, session.Overcrowded: true, session.Looped: true,
	session.RefusedUpstream: true,
	session.NamesFull:       true, session.DisplacedStream: true, session.DisplacedNames: true, session.DisplacedGroup: true, session.DisplacedType: true, session.DisplacedCall: true,
}

// maxListed bounds the types and the groups that a line lists.
const maxListed = 12

// groupsOf are the groups that serve a client, as they are called in logs.
func groupsOf(s *session.Session) string {
	var names []string
	hubs, _ := s.Served()
	for _, hub := range hubs[:min(len(hubs), maxListed)] {
		names = append(names, hub.Name())
	}
	return strings.Join(names, ",")
}

// shortsOf are the types of a client, as people call them.
func shortsOf(types []cache.TypeURL) string {
	var names []string
	for _, t := range types[:min(len(types), maxListed)] {
		names = append(names, t.Name())
	}
	return strings.Join(names, ",")
}

// tellOpen logs the first request of a stream, which names its client.
func (st *stream) tellOpen(t cache.TypeURL) {
	groups := ""
	st.with(func(of *session.Session) { groups = groupsOf(of) })
	st.log().Info("client stream open", "type", t, "group", groups)
}

// tellEnd logs the end of a stream, and what it has come to.
func (st *stream) tellEnd(reason session.Reason, message string, types []cache.TypeURL, groups string) {
	fields := []any{
		"reason", reason, "err", message, "dur_ms", time.Since(st.since).Milliseconds(), "types", shortsOf(types), "group", groups,
		"requests", st.requests, "nacks", st.nacks.Load(), "responses", st.responses.Load(), "bytes", st.sentSize.Load(),
	}
	switch {
	case refusals[reason]:
		if st.refused != "" { // it is not known of a message that is too large
			fields = append(fields, "type", st.refused)
		}
		st.log().Warn("client refused", fields...)
	case reason == session.Stalled:
		st.log().Warn("client stream ended: the client does not read", fields...)
	default:
		st.log().Info("client stream ended", fields...)
	}
}

// tellRefusals logs types that are refused while the stream goes on, and the end of that.
func (st *stream) tellRefusals(news []session.Refusal) {
	st.server.tellRefusals(news, st.log)
	for _, r := range news {
		st.tellRefusal(r)
	}
}

func (s *Server) tellRefusals(news []session.Refusal, log func() *slog.Logger) {
	for _, r := range news {
		switch {
		case r.Names > 0:
			if !r.Repeated {
				log().Warn("client refused names, and served others", "type", r.Type, "names", r.Names, "reason", r.Reason, "err", r.Message, "rules", r.Rules)
			}
			s.observer.ClientNamesRefused(r.Reason, r.Names)
			continue
		case r.Reason == session.Glob:
			tellGlob(log, r)
		case r.Notice == session.NoticeNothing:
			log().Warn("client refused a type, and waits: no error answers a wildcard, and none may come with a set that removes what the client has", "type", r.Type, "reason", r.Reason, "err", r.Message, "rules", r.Rules)
		default:
			log().Warn("client refused a type", "type", r.Type, "reason", r.Reason, "err", r.Message, "rules", r.Rules)
		}
		s.observer.ClientTypeRefused(r.Type, r.Reason, r.Notice)
	}
}

// tellGlob logs the first glob that a client of a group asks for. The others are like it, and may be very many.
func tellGlob(log func() *slog.Logger, r session.Refusal) {
	if r.First {
		log().Warn("clients of this group ask for xdstp globs, which are not served: each is told so, and keeps what it has", "group", r.Group, "type", r.Type, "first", r.Glob, "err", r.Message)
	}
}

// debugs reports whether requests and responses are logged. Nothing is computed for the log
// unless they are.
func (s *Server) debugs() bool { return s.log.Enabled(context.Background(), slog.LevelDebug) }

// tellRequest logs a request.
func (st *stream) tellRequest(kind session.RequestKind, request []any) {
	st.log().Debug("client request", append(request, "kind", kind)...)
}

// tellResponse logs a response that was handed over.
func (st *stream) tellResponse(r *session.Response, size int) {
	st.log().Debug("client response", "type", r.Type, "nonce", r.Nonce, "version", logging.Version(st.server.now.Load().Types, r.Type, r.Version),
		"resources", len(r.Resources), "removed", len(r.Removed), "errors", len(r.Errors), "first", r.Listing().First, "bytes", size)
}

// describe returns the request that was received, for the log.
func (in *inbox) describe(types cache.Types) []any {
	if in.request == nil {
		return []any{"type", cache.TypeURL(in.bare.TypeURL), "nonce", string(in.bare.Nonce)}
	}
	nack := ""
	if e := in.request.(interface{ GetErrorDetail() *statuspb.Status }).GetErrorDetail(); e != nil {
		nack = session.NackMessage(e)
	}
	return logging.Request(types, in.request, nack)
}

// oversized counts and logs what is too large for the client (ERR-13).
func (s *Server) oversized(r *session.Response, size int, log func() *slog.Logger) {
	for _, o := range r.Oversized {
		s.observer.ClientOversized(r.Type, OversizedResource)
		log().Warn("resource too large for a client", "type", r.Type, "name", o.Name, "bytes", o.Bytes, "max_response_bytes", s.now.Load().MaxResponse)
	}
	if limit := s.now.Load().MaxResponse; !r.Delta && limit > 0 && size > limit {
		s.observer.ClientOversized(r.Type, OversizedResponse)
		log().Warn("SotW response too large for a client; it is sent all the same", "type", r.Type, "nonce", r.Nonce, "bytes", size, "max_response_bytes", limit)
	}
}

func (st *stream) log() *slog.Logger {
	st.mu.Lock()
	node := st.session.Node()
	st.mu.Unlock()
	return st.server.log.With("stream_id", st.id, "node_id", node.GetId(), "peer", st.peer.Address, "identity", st.peer.Identity, "protocol", st.protocol())
}
