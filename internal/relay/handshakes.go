package relay

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/internal/certs"
)

// CertificateObserver counts handshakes and changes of certificate files. Its methods may
// be called from any goroutine.
type CertificateObserver interface {
	certs.Observer
	// HandshakeFailed: a handshake has failed on a side of the relay.
	HandshakeFailed(hop certs.Hop, reason certs.Reason)
}

type noCertificates struct{}

func (noCertificates) CertificatesReloaded(bool)               {}
func (noCertificates) HandshakeFailed(certs.Hop, certs.Reason) {}

// handshakes counts those that fail. One with a control plane ends a stream, and the
// log has it there. Those of clients are logged here, one of each kind in
// refusedEvery, since clients come back for ever and anybody may connect.
type handshakes struct {
	log      *slog.Logger
	observer CertificateObserver

	mu   sync.Mutex
	seen map[refusal]*refusals
}

// refusal is a kind of failure of which one in refusedEvery is logged.
type refusal struct {
	failure certs.Failure
	text    string
}

// refusedEvery is how often clients that fail for one reason are mentioned.
const refusedEvery = 10 * time.Second

// refusals are what happened for one reason.
type refusals struct {
	next time.Time // when it is mentioned again
	held int       // not logged yet
}

func newHandshakes(log *slog.Logger, o CertificateObserver) *handshakes {
	if o == nil {
		o = noCertificates{}
	}
	return &handshakes{log: log, observer: o, seen: make(map[refusal]*refusals)}
}

// failed takes note of a handshake with a control plane, and of the certificate that the relay was to show.
func (h *handshakes) failed(f certs.Failure, ours *certs.Material) {
	h.observer.HandshakeFailed(certs.Upstream, f.Against(ours.Leaf(), time.Now()).Reason)
}

// refused takes note of a handshake with a client, and of the certificate that the relay was to show. The
// client's certificate, if it has shown one, is not verified.
func (h *handshakes) refused(raw net.Conn, f certs.Failure, ours *certs.Followed, err error) {
	f = f.Against(ours.Material().Leaf(), time.Now())
	h.tell(raw, f, clientFailure(f, ours.Files()), err)
}

// misaddressed takes note of a client that does not speak plaintext gRPC where that is served.
func (h *handshakes) misaddressed(raw net.Conn, why error, first []byte) {
	h.tell(raw, certs.Failure{Reason: certs.HandshakeProtocol, Remote: true}, why.Error(), fmt.Errorf("it begins with %q", first))
}

func (h *handshakes) tell(raw net.Conn, f certs.Failure, text string, err error) {
	h.observer.HandshakeFailed(certs.Downstream, f.Reason)
	more, ok := h.mention(refusal{f, text}, time.Now())
	if !ok {
		return
	}
	h.log.Warn("a client could not connect: "+text, "reason", string(f.Reason), "peer", downstream.PeerName(raw.RemoteAddr()), "subject", certs.ShownIn(err), "err", err, "more_since_last", more)
}

func (h *handshakes) mention(kind refusal, now time.Time) (held int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.seen[kind]
	if s == nil {
		s = &refusals{}
		h.seen[kind] = s
	}
	if now.Before(s.next) {
		s.held++
		return 0, false
	}
	held, s.held, s.next = s.held, 0, now.Add(refusedEvery)
	return held, true
}

// clientFailure says in plain words why a client could not connect, and what to look at.
func clientFailure(f certs.Failure, ours certs.Files) string {
	if ours.Agent != "" && f == (certs.Failure{Reason: certs.HandshakeUnknownCA}) {
		return "its certificate is not signed by its own trust domain, or that is not among downstream.tls.spiffe.trust_domains"
	}
	return strings.NewReplacer("downstream.tls.cert", ours.CertKey(), "downstream.tls.client_ca", ours.CAKey()).Replace(failureText(f))
}

func failureText(f certs.Failure) string {
	if f.Remote {
		switch f.Reason {
		case certs.HandshakeExpired:
			return "it does not accept the certificate of downstream.tls.cert, which has expired; renew it, or see the client's clock"
		case certs.HandshakeNotYetValid:
			return "it does not accept the certificate of downstream.tls.cert, which is not valid yet; see the clock of this host"
		case certs.HandshakeUnknownCA:
			return "it does not trust the authority that signed the certificate of downstream.tls.cert; give it that one's certificate"
		case certs.HandshakeWrongName:
			return "the certificate of downstream.tls.cert is not for the name that it calls the relay by"
		case certs.HandshakeProtocol:
			return "it and the relay have no version of TLS or cipher suite in common"
		}
		return "it does not accept the certificate of downstream.tls.cert; it must trust the authority that signed it, and call the relay by a name that is in it"
	}
	switch f.Reason {
	case certs.HandshakeExpired:
		return "its certificate has expired; renew it, or see the clock of this host"
	case certs.HandshakeNotYetValid:
		return "its certificate is not valid yet; see its clock and that of this host"
	case certs.HandshakeUnknownCA:
		return "its certificate is signed by nobody in downstream.tls.client_ca"
	case certs.HandshakeNoCertificate:
		return "it shows no certificate, and downstream.tls.client_ca asks for one"
	case certs.HandshakeNoSVID:
		return "the relay has no certificate yet; see the agent of downstream.tls.spiffe.workload_api"
	case certs.HandshakeProtocol:
		return "it does not speak TLS, or not HTTP/2 over it, and downstream.tls is set"
	}
	return "the TLS handshake failed; see that it and downstream.tls agree"
}
