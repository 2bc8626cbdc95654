package admin

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/csds"
	"github.com/xds-relay/xds-relay/internal/descriptors"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// services are what a relay offers to tools over gRPC, on the connections of its HTTP face: CSDS, health,
// reflection and channelz (CSDS-1).
type services struct {
	grpc    *grpc.Server
	csds    *csds.Service
	watches chan struct{} // the open calls that last until who asks hangs up
}

func newServices(r Relay, shows func() config.CSDS) *services {
	if shows == nil {
		shows = func() config.CSDS { return config.CSDSStatus }
	}
	g := &services{
		grpc:    grpc.NewServer(grpc.ForceServerCodecV2(csds.Codec()), grpc.MaxRecvMsgSize(csds.MaxRequest)),
		csds:    csds.New(r, shows),
		watches: make(chan struct{}, descriptors.ForHTTP(descriptors.Limit())/4),
	}
	g.csds.Register(g.grpc)
	healthpb.RegisterHealthServer(g.grpc, r.Health())
	service.RegisterChannelzServiceToServer(g.grpc)
	g.reflects()
	return g
}

// reflects has tools learn of services and their messages, in both versions of the protocol.
func (g *services) reflects() {
	o := reflection.ServerOptions{Services: g.grpc, DescriptorResolver: readable.Descriptors{}}
	reflectv1.RegisterServerReflectionServer(g.grpc, reflection.NewServerV1(o))
	reflectv1alpha.RegisterServerReflectionServer(g.grpc, reflection.NewServer(o))
}

// methods lists them, as service/method.
func (g *services) methods() (all []string) {
	for name, info := range g.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			all = append(all, name+"/"+m.Name)
		}
	}
	slices.Sort(all)
	return all
}

// isGRPC reports whether a request is one of gRPC. Others with such a beginning, as gRPC-Web, are not.
func isGRPC(req *http.Request) bool {
	rest, ok := strings.CutPrefix(req.Header.Get("Content-Type"), "application/grpc")
	if !ok || req.ProtoMajor != 2 {
		return false
	}
	return rest == "" || strings.ContainsRune("+;", rune(rest[0]))
}

// either has gRPC requests answered by the services, and others by pages.
func (g *services) either(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if isGRPC(req) {
			g.ServeHTTP(w, req)
		} else {
			pages.ServeHTTP(w, req)
		}
	})
}

// ServeHTTP answers a gRPC request. The time of the HTTP server's other requests holds for it, but not for calls that
// last.
func (g *services) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	lasts := &lasting{call: http.NewResponseController(w)}
	defer lasts.end()
	switch {
	case strings.HasPrefix(req.URL.Path, "/"+csds.Name+"/"):
		leave, err := g.csds.Enter()
		if err != nil {
			refuse(w, err)
			return
		}
		defer leave()
		req = req.WithContext(csds.Renewing(req.Context(), func(d time.Duration) { lasts.until(time.Now().Add(d)) }))
	case req.URL.Path == healthpb.Health_Watch_FullMethodName:
		select {
		case g.watches <- struct{}{}:
			defer func() { <-g.watches }()
		default:
			refuse(w, status.Errorf(codes.ResourceExhausted, "%d health checks are watched, and no more can be; close those that are not needed, or use Check", cap(g.watches)))
			return
		}
		lasts.until(time.Time{})
	}
	g.grpc.ServeHTTP(w, req)
}

// lasting is a call whose time can be extended. What answers it may go on for a moment when the call is over, and the
// server's response must not be touched then.
type lasting struct {
	mu   sync.Mutex
	call *http.ResponseController // nil: it is over
}

// until lets the call wait for a request until then; the zero time stands for never.
func (l *lasting) until(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.call != nil {
		_ = extend(l.call, t) // an error means that whoever asked is gone
	}
}

func (l *lasting) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.call = nil
}

// toEnd is how long a call may take to say why it has ended.
const toEnd = 10 * time.Second

// extend lets a call wait for a request until then; the zero time stands for never.
func extend(call *http.ResponseController, until time.Time) error {
	end := until
	if !until.IsZero() {
		end = until.Add(toEnd)
	}
	return errors.Join(call.SetReadDeadline(until), call.SetWriteDeadline(end))
}

// close ends all calls. Their connections are closed.
func (g *services) close() { g.grpc.Stop() }

// refuse answers a gRPC request with a status alone. To others than gRPC's clients it looks like an empty answer.
func refuse(w http.ResponseWriter, err error) {
	s := status.Convert(err)
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Grpc-Status", fmt.Sprint(int(s.Code())))
	w.Header().Set("Grpc-Message", percent(s.Message()))
	w.WriteHeader(http.StatusOK)
}

// percent writes a message as gRPC's headers have it.
func percent(message string) string {
	var b strings.Builder
	for _, c := range []byte(message) {
		if c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// deny refuses a request in its own form.
func deny(w http.ResponseWriter, req *http.Request, code int, message string) {
	if isGRPC(req) {
		refuse(w, status.Error(codes.PermissionDenied, message))
		return
	}
	http.Error(w, message, code)
}
