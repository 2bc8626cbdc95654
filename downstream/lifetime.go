package downstream

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"google.golang.org/grpc/keepalive"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// A stream ends by itself when its connection is old, or when the certificate of its client expires: a certificate
// that lasts for an hour gives nobody a stream for longer. The client comes back on another connection, with the
// certificate that it then has.

// The parts of a connection's age limit. First gRPC tells the client to open its next streams
// elsewhere (GOAWAY). Clients go on with the streams that they have, so the relay then ends these
// one by one. What is left, such as a stream that has no such end, is cut off with the
// connection. gRPC adds 10 % of jitter to the first step, and the second begins when that is
// surely over.
const (
	goAwayAt  = 0.8
	endFrom   = 0.9
	endTo     = 1.1
	cutOffAt  = 1.3
	goAwayEnd = 1.1 * goAwayAt // the latest, with gRPC's jitter
)

// The last part of the time for which a certificate is valid. Streams end at random in it, so that not all of those
// come back at once whose certificates were made at the same time.
const (
	lastPart  = 5 * time.Minute
	lastShare = 0.1 // at most, of the whole time
)

// ageLimit adds the age limit to gRPC's parameters.
func ageLimit(p keepalive.ServerParameters, age time.Duration) keepalive.ServerParameters {
	if age > 0 {
		p.MaxConnectionAge = portion(age, goAwayAt)
		p.MaxConnectionAgeGrace = portion(age, cutOffAt-goAwayEnd)
	}
	return p
}

func portion(d time.Duration, fraction float64) time.Duration {
	return time.Duration(fraction * float64(d))
}

// lifetime says when a stream of a connection ends that begins now, and for which reason; nil: it has no such end.
func (s *Server) lifetime(c *conn, now time.Time) (at time.Time, end *session.End) {
	if c == nil {
		return at, nil
	}
	if age := s.config.Connection.MaxAge; age > 0 {
		at = c.since.Add(portion(age, endFrom+(endTo-endFrom)*s.config.Random()))
		end = &session.End{Reason: session.Aged, Message: "xds-relay: the connection has reached downstream.max_connection_age; connect again"}
	}
	if c.proof != nil {
		if expires := lastOf(c.proof, now, s.config.Random); end == nil || expires.Before(at) {
			at, end = expires, outlived(c.proof)
		}
	}
	return at, end
}

// lastOf says until when a stream may last that begins now, and whose client has shown a certificate. One that begins in
// the last part lasts until the certificate expires: its client has no other one yet.
func lastOf(proof *x509.Certificate, now time.Time, random func() float64) time.Time {
	last := min(lastPart, portion(proof.NotAfter.Sub(proof.NotBefore), lastShare))
	from := proof.NotAfter.Add(-last)
	if !now.Before(from) {
		return proof.NotAfter
	}
	return from.Add(portion(last, random()))
}

// expired refuses what is new on a connection whose client's certificate has expired since its handshake.
func (c *conn) expired(now time.Time) *session.End {
	if c == nil || c.proof == nil || now.Before(c.proof.NotAfter) {
		return nil
	}
	return outlived(c.proof)
}

func outlived(proof *x509.Certificate) *session.End {
	return &session.End{Reason: session.CertificateExpired, Message: fmt.Sprintf(
		"xds-relay: the certificate of the client is valid until %s, and its streams end by then; connect again with a new one", proof.NotAfter.UTC().Format(time.RFC3339))}
}

// drains is what carries the streams of a connection.
type drains interface{ Drain(debugData string) }

// ofConnection reports whether a reason is one of the connection, which has shown an old certificate or leads to a relay
// that is drained: a client that came back on it would be refused again.
func ofConnection(reason session.Reason) bool {
	return reason == session.CertificateExpired || reason == session.Drained
}

// sendAway has gRPC tell the client of a stream or call to open its next streams on another connection (GOAWAY), if the
// reason for its end is one of the connection.
// gRPC does this by itself only for all connections, or by their age.
func sendAway(ctx context.Context, end *session.End) {
	if !ofConnection(end.Reason) {
		return
	}
	if of, ok := inside[drains](ctx, "st"); ok {
		of.Drain(string(end.Reason))
	}
}
