package preflight

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/header"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/service"
)

// asked are the types whose first request may be without names, so that any server lists
// what it has.
var asked = []cache.TypeURL{cache.Cluster, cache.Listener}

// answer is what came of asking for one type in one variant.
type answer struct {
	typ        cache.TypeURL
	names      map[string]bool
	responses  int
	open       bool // it was silent, which says nothing where names are to be asked for
	identifier string
	err        error
}

// speaks: it answers xDS, in a variant that the relay would ask in.
func (k *checker) speaks(ctx context.Context, t *target) {
	name := t.section + ": xDS"
	conn, err := grpc.NewClient("passthrough:///"+t.entry.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority(t.authority()), grpc.WithUserAgent("xds-relay"), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(int(k.config.Upstream.MaxReceiveBytes))),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return t.secure(ctx, k.o.Within) }))
	if err != nil {
		k.fail(name, "", "%v", err)
		return
	}
	defer conn.Close()
	var headers []header.Header
	if own := relay.OwnHeaders(t.entry); own != nil {
		if headers, err = own(); err != nil {
			k.fail(t.section+": headers", "check the file and what it holds", "%v", err)
			return
		}
		for _, h := range headers {
			ctx = metadata.AppendToOutgoingContext(ctx, h.Name, string(h.Value))
		}
	}
	if t.source.Name == "" { // calls go to none of upstream.by_type
		defer k.goesThrough(ctx, t, conn, headers)
	}
	types := k.types(t.source)
	if len(types) == 0 {
		k.note(name, "", "%s has neither CDS nor LDS, and nothing else can be asked for without names", t.section+".types")
		return
	}
	variants := []bool{false, true}
	answers := make([]chan answer, 0, len(variants)*len(types))
	node := relay.NewGrouping(k.config).NodeFor(t.source.Name)
	for _, sotw := range variants {
		for _, typ := range types {
			done := make(chan answer, 1)
			answers = append(answers, done)
			go func() { done <- k.ask(ctx, conn, t.source, node, typ, sotw) }()
		}
	}
	identifier, of, answered := "", make([][]answer, len(variants)), make([]bool, len(variants))
	for i := range variants {
		for range types {
			a := <-answers[0]
			answers = answers[1:]
			of[i] = append(of[i], a)
			answered[i] = answered[i] || a.answered()
			identifier = cmp.Or(a.identifier, identifier)
		}
	}
	works, hint := slices.Contains(answered, true), ""
	for i, sotw := range variants {
		todo := k.variant(t, sotw, of[i], answered[i], works, headers)
		hint = cmp.Or(hint, todo)
	}
	switch {
	case t.auto() && !works:
		k.fail(name, hint, "it answers in no variant")
	case works && identifier == "":
		k.ok(t.section+": control plane", "it does not say who it is")
	case works:
		k.ok(t.section+": control plane", "%q", identifier)
	}
}

// auto: the relay asks in either variant.
func (t *target) auto() bool { return t.entry.Mode == config.FallbackMode(config.UpstreamModeAuto) }

// authority is the name by which the server is called.
func (t *target) authority() string {
	if t.network == "unix" {
		return "localhost"
	}
	return t.address
}

// variant reports the result of one variant, and returns what to do if it is not well. works means
// that there was an answer in it, and somewhere that there was one in either.
func (k *checker) variant(t *target, sotw bool, answers []answer, works, somewhere bool, headers []header.Header) (hint string) {
	services := "ADS"
	if t.source.PerType {
		services = "of each type"
	}
	name, mode := t.section+": Delta "+services, config.FallbackMode(config.UpstreamModeDelta)
	if sotw {
		name, mode = t.section+": SotW "+services, config.FallbackMode(config.UpstreamModeSotW)
	}
	var said, mute []string
	var problem error
	for _, a := range answers {
		switch {
		case a.responses > 0:
			said = append(said, fmt.Sprintf("%d %s", len(a.names), a.typ.Short()))
		case a.open:
			said = append(said, a.typ.Short()+" is taken, and silent without names")
		case a.err != nil:
			problem = a.err
			mute = append(mute, a.typ.Short())
			said = append(said, fmt.Sprintf("%s: %s", a.typ.Short(), header.Hide(status.Convert(a.err).Message(), headers)))
		}
	}
	text := strings.Join(said, ", ")
	node := fmt.Sprintf("a node with id %q and cluster %q", k.config.Upstream.Node.ID, k.config.Upstream.Node.Cluster)
	switch code := status.Code(problem); {
	case code == codes.OK:
	case code == codes.Unimplemented && t.source.Name != "" && !somewhere:
		other := config.ServicesPerType
		if t.source.PerType {
			other = config.ServicesADS
		}
		hint = fmt.Sprintf("it has another service, or does not have the type: set %s.services to %s, or take the type out", t.source.Section, other)
	case code == codes.Unimplemented:
		hint = "it has no such variant: set " + t.section + ".mode to the other one, or to auto"
	case code == codes.Unauthenticated, code == codes.PermissionDenied:
		hint = "it wants to know who asks: see " + t.section + ".headers, and " + t.section + ".tls.cert"
	case code == codes.DeadlineExceeded && works:
		hint = fmt.Sprintf("it answers, and is silent about %s: it has none for %s, or does not serve the type; clients that ask for it wait", strings.Join(mute, ", "), node)
	case code == codes.DeadlineExceeded && somewhere:
		hint = "it answers in the other variant only: set " + t.section + ".mode to that one, or to auto"
	case code == codes.DeadlineExceeded:
		hint = fmt.Sprintf("it takes connections and says nothing: see whether it is a gRPC server, whether it serves %s, and whether it hangs", node)
	default:
		hint = t.hints.Explain(status.Convert(problem).Message(), false)
	}
	switch {
	case problem == nil:
		k.ok(name, "%s", text)
	case works:
		k.note(name, hint, "%s", text)
	case t.entry.Mode == mode:
		k.fail(name, hint, "%s", text)
	default: // the relay can do without
		k.note(name, "", "%s", text)
	}
	return hint
}

func (a *answer) answered() bool { return a.responses > 0 || a.open }

// types are those that are asked of a source.
func (k *checker) types(of config.Source) []cache.TypeURL {
	if of.Name != "" {
		return relay.TypeURLs(of.Types)
	}
	return slices.DeleteFunc(slices.Clone(asked), func(typ cache.TypeURL) bool {
		only := relay.TypeURLs(of.Types)
		return len(only) > 0 && !slices.Contains(only, typ) || k.config.Upstream.SourceOf(string(typ)) > 0
	})
}

// ask asks for all resources of a type, and counts them until nothing more comes.
func (k *checker) ask(ctx context.Context, conn *grpc.ClientConn, of config.Source, node *core.Node, typ cache.TypeURL, sotw bool) answer {
	a := answer{typ: typ, names: make(map[string]bool)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(k.o.Within, cancel)
	defer timer.Stop()
	stream, err := open(ctx, conn, of, typ, sotw)
	switch heard := func() { timer.Reset(k.o.Settle) }; {
	case err != nil:
	case sotw:
		err = a.sotw(stream, node, heard)
	default:
		err = a.delta(stream, node, heard)
	}
	late := ctx.Err() != nil && status.Code(err) == codes.Canceled
	a.open = late && a.responses == 0 && !slices.Contains(asked, typ)
	if !a.answered() {
		if a.err = err; late {
			a.err = status.Errorf(codes.DeadlineExceeded, "no answer within %v", k.o.Within)
		}
	}
	return a
}

// open opens a stream for a type.
func open(ctx context.Context, conn *grpc.ClientConn, of config.Source, typ cache.TypeURL, sotw bool) (grpc.ClientStream, error) {
	s, _ := service.Of("")
	if of.PerType {
		s, _ = service.Of(typ)
	}
	desc, method, ok := s.Stream(sotw)
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "%s has no method of this variant", s.ServiceName)
	}
	return conn.NewStream(ctx, desc, method)
}

func (a *answer) delta(stream grpc.ClientStream, node *core.Node, heard func()) error {
	first := &discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: string(a.typ)}
	if !slices.Contains(asked, a.typ) {
		first.ResourceNamesSubscribe = []string{"*"}
	}
	_ = stream.SendMsg(first) // RecvMsg has the reason
	for {
		resp := &discovery.DeltaDiscoveryResponse{}
		if err := stream.RecvMsg(resp); err != nil {
			return err
		}
		for _, r := range resp.GetResources() {
			a.names[r.GetName()] = true
		}
		a.heard(resp.GetControlPlane())
		_ = stream.SendMsg(&discovery.DeltaDiscoveryRequest{TypeUrl: string(a.typ), ResponseNonce: resp.GetNonce()})
		heard()
	}
}

func (a *answer) sotw(stream grpc.ClientStream, node *core.Node, heard func()) error {
	_ = stream.SendMsg(&discovery.DiscoveryRequest{Node: node, TypeUrl: string(a.typ)}) // RecvMsg has the reason
	for {
		resp := &discovery.DiscoveryResponse{}
		if err := stream.RecvMsg(resp); err != nil {
			return err
		}
		clear(a.names) // a response has all there is
		for i := range resp.GetResources() {
			a.names[fmt.Sprint(i)] = true
		}
		a.heard(resp.GetControlPlane())
		_ = stream.SendMsg(&discovery.DiscoveryRequest{Node: node, TypeUrl: string(a.typ), ResponseNonce: resp.GetNonce(), VersionInfo: resp.GetVersionInfo()})
		heard()
	}
}

func (a *answer) heard(from *core.ControlPlane) {
	a.responses++
	if id := from.GetIdentifier(); id != "" {
		a.identifier = id
	}
}
