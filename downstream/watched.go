package downstream

import (
	"cmp"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/logging"
)

// What is shown of requests and responses to whoever watches a client.

// watches reports whether somebody watches a type of the client. The node is not known before the first request is
// taken in; before that, whoever watches any client may want to see it.
func (st *stream) watches(t cache.TypeURL) bool {
	watch := st.server.config.Watch
	if !watch.Watched() {
		return false
	}
	st.mu.Lock()
	node := st.session.Node()
	st.mu.Unlock()
	return node == nil || watch.Wants(st.id, node.GetId(), t)
}

// outline is the request that was received, for whoever watches; nil if nobody does.
func (st *stream) outline() *events.Message {
	if !st.server.config.Watch.Watched() {
		return nil
	}
	m := st.in.outline(st.server.now.Load().Types)
	if !st.watches(m.Type) {
		return nil
	}
	return m
}

// showRequest shows a request that was taken in.
func (st *stream) showRequest(m *events.Message, kind session.RequestKind) {
	if m != nil {
		m.Kind = cmp.Or(events.MessageKind(kind), "refused")
		st.show(m)
	}
}

// showResponse shows a response that was handed over.
func (st *stream) showResponse(r *session.Response, size int) {
	if !st.watches(r.Type) {
		return
	}
	st.show(st.server.response(r, size))
}

// response is what is shown of a response.
func (s *Server) response(r *session.Response, size int) *events.Message {
	return &events.Message{
		Kind: events.Response, Type: r.Type, Nonce: r.Nonce, Version: logging.Version(s.now.Load().Types, r.Type, r.Version),
		Names: r.Listing().First, Resources: len(r.Resources), Removed: len(r.Removed), Errors: len(r.Errors), Bytes: size,
	}
}

// showCall shows the request of a unary call, or its answer, to whoever watches. It is on no stream.
func (s *Server) showCall(node string, t cache.TypeURL, of func() *events.Message) {
	if s.config.Watch.Wants(0, node, t) {
		m := of()
		m.Node, m.Type = node, t
		s.config.Watch.Show(*m)
	}
}

// outlineCall is what is shown of a unary call's request.
func (s *Server) outlineCall(in *inbox, refused bool) *events.Message {
	m := in.outline(s.now.Load().Types)
	if m.Kind = events.MessageKind(session.FetchRequest); refused {
		m.Kind = "refused"
	}
	return m
}

func (st *stream) show(m *events.Message) {
	m.Stream = st.id
	st.mu.Lock()
	m.Node = st.session.Node().GetId()
	st.mu.Unlock()
	st.server.config.Watch.Show(*m)
}

// outline is what is shown of the request that was received.
func (in *inbox) outline(types cache.Types) *events.Message {
	m := &events.Message{}
	nack := func(e *statuspb.Status) {
		if e != nil {
			m.Nack = session.NackMessage(e)
		}
	}
	switch r := in.request.(type) {
	case nil:
		m.Type, m.Nonce, m.Bytes = cache.TypeURL(in.bare.TypeURL), string(in.bare.Nonce), in.bare.Size()
		return m
	case *discovery.DeltaDiscoveryRequest:
		m.Type, m.Nonce, m.Names = cache.TypeURL(r.GetTypeUrl()), r.GetResponseNonce(), r.GetResourceNamesSubscribe()
		m.Unsubscribe = len(r.GetResourceNamesUnsubscribe())
		nack(r.GetErrorDetail())
	case *discovery.DiscoveryRequest:
		m.Type, m.Nonce, m.Names = cache.TypeURL(r.GetTypeUrl()), r.GetResponseNonce(), r.GetResourceNames()
		m.Version = logging.Version(types, m.Type, r.GetVersionInfo())
		nack(r.GetErrorDetail())
	}
	m.Asked, m.Bytes = len(m.Names), proto.Size(in.request)
	return m
}
