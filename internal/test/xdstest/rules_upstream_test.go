package xdstest_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
	"github.com/xds-relay/xds-relay/internal/test/xdstest/play"
)

// upstreamRules are the rules of the client side that the relay keeps, and those
// that both sides have in common.
var upstreamRules = slices.Concat(
	numbered("UP", 1, 19), numbered("UP", 21, 28),
	numbered("MISS", 1, 10),
	numbered("REST", 11, 16),
	numbered("FS", 1, 11),
	numbered("RECON", 1, 20),
	numbered("ERR", 1, 16),
	numbered("TTL", 1, 13),
	numbered("VALID", 1, 13),
	numbered("H", 1, 42),
)

const files = "what stands in files is no message; internal/origin/files, relay.TestFromFiles and its like, e2e/envoy.TestFiles"

const polls = "transcripts speak gRPC; "

// upstreamReasons are why a rule has no transcript, or not all of it, and what
// shows it instead.
var upstreamReasons = map[string]string{
	"FS-1": files, "FS-2": files, "FS-3": files, "FS-4": files, "FS-5": files, "FS-6": files, "FS-7": files, "FS-8": files, "FS-9": files, "FS-10": files,
	"FS-11":   "what stands in files is no message; internal/origin/files.TestCollections and its like",
	"REST-11": polls + "relay.TestFromREST, TestFromREST_OneAtATime, _Fleet and _Again, internal/origin/rest, e2e.TestREST, e2e/envoy.TestSovereign",
	"REST-12": polls + "relay.TestFromREST and TestFromREST_Absent",
	"REST-13": polls + "relay.TestFromREST_Failure and _OneType, internal/origin/rest.TestFailures",
	"REST-14": polls + "relay.TestFromREST_Wait and _WaitBeside",
	"REST-15": polls + "relay.TestFromREST_Guard and _Fallback",
	"REST-16": polls + "internal/origin/rest.TestDecode, internal/xdsjson.TestBadResponse and FuzzReadResponse",
	"UP-12":   "a response above Go's 4 MiB does not fit into a file that people read; TestLargeResources",
	"UP-27":   "a transcript has one list of control planes; relay.TestByType and its like, e2e/envoy.TestByType",
	"UP-13": "keepalive and TCP_USER_TIMEOUT are options of real sockets, and a transcript has none; " +
		"upstream.TestDeadPeersAreNoticed reads them back",
	"ERR-13":  "a message above Go's 4 MiB does not fit into a file that people read; TestLargeResources",
	"ERR-14":  "a transcript ends when its relay does; TestShutdownIsSpread and TestReadiness",
	"VALID-3": "transcripts have no words for unknown fields; cache.TestResourceLeavesAsItCame, and for the messages around them downstream.TestFrameIsTheMessage",
	"VALID-4": "transcripts have words for aliases and cache_control, but none for metadata; cache.TestResourceLeavesAsItCame",
	"RECON-5": "the player fails on a version that is no fingerprint; xdstest.Dialogue.Hear",
	"VALID-7": "bytes that are shared are the same bytes; downstream.TestBytesAreShared, downstream.TestGzipOnceForAll and downstream.TestGzipIsTheSame",
	"VALID-9": "what a request costs is in no message; BenchmarkUnderLock of downstream/session and upstream (make bench-lock), upstream.TestInventedTypesAreForgotten, fanout.TestForgottenTypesCostNothing",
	"VALID-10": "transcripts for groups, and what needs many connections or a clock of its own: " +
		"downstream.TestStreamsAreShared, TestNamesAreShared and TestConnectionsAreShared",
	"VALID-11": "a transcript's client has one stream a connection; TestStreamsPerConnection, downstream.TestFloodsEnd and TestRapidReset",
	"VALID-12": "transcripts have no incomplete requests; downstream.TestInflight_Turns, TestInflight_Bound and their like, S2 and S8 of internal/test/attack",
	"H-38":     "transcripts speak gRPC, and not HTTP; relay.TestPollKeepsInterest",
	"VALID-13": "transcripts for sets; downstream.TestMemoryPressure for memory",
}

// TestLargeResources: the relay takes in what is far above Go's default limit
// (UP-12); a client that cannot is the only one to suffer (ERR-13).
func TestLargeResources(t *testing.T) {
	const mebi = 1 << 20
	if limit := config.Default().Upstream.MaxReceiveBytes; limit < 64*mebi {
		t.Errorf("by default a response may have %v, want 64 MiB at least", limit)
	}
	body := strings.Repeat("x", 5*mebi)
	file := filepath.Join(t.TempDir(), "a-resource-too-large-for-one-client-hurts-no-other.txt")
	if err := os.WriteFile(file, []byte(`# A resource that is too large for one client reaches the relay, and hurts no other client.
# spec: UP-12 ERR-13
c1 > sub FOO big
up < open node=xds-relay
up < sub FOO big
c2 > sub FOO small
up < sub FOO small
up > resp FOO nonce=u1 big@1=`+body+` small@1
up < ack FOO u1
c1 < end RESOURCE_EXHAUSTED ...
c2 < resp FOO +small@1
c2 > ack FOO
up > resp FOO nonce=u2 big@2 small@2
up < ack FOO u2
c2 < resp FOO +small@2
c1 > open delta
c1 > sub FOO big
c1 < resp FOO +big@2
`), 0o600); err != nil {
		t.Fatal(err)
	}
	xdstest.Run(t, file, xdstest.Live(play.StartRelay))
}

// conversation is a relay in a bubble that a test can reach, which a transcript
// cannot.
type conversation struct {
	t      *testing.T
	player xdstest.Player
	relay  *relay.Relay
}

// converse starts a relay for a test that runs in a bubble.
func converse(t *testing.T, set ...string) *conversation {
	t.Helper()
	c := &conversation{t: t}
	factory := func(set []string, dial func(context.Context, string) (net.Conn, error), listen net.Listener) (xdstest.Relay, error) {
		conf, err := config.Load("", slices.Concat(play.Calm, set))
		if err != nil {
			return nil, err
		}
		r, err := relay.New(conf, relay.Options{Dial: dial, Random: play.Random})
		if err != nil {
			return nil, err
		}
		c.relay = r
		if ready, why := r.Ready(); ready {
			t.Errorf("ready before it listens: %s", why)
		}
		r.Serve(listen)
		return once{r, sync.OnceFunc(func() { r.Close(0) })}, nil
	}
	transcript, err := xdstest.Parse("test", "# A conversation.\n# spec: ERR-14\n")
	if err != nil {
		t.Fatal(err)
	}
	transcript.Config = set
	if c.player, err = xdstest.Live(factory)(transcript); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *conversation) say(actor, text string) {
	c.t.Helper()
	if err := c.player.Say(actor, xdstest.MustParse(actor, text)); err != nil {
		c.t.Fatalf("%s > %s: %v", actor, text, err)
	}
}

// heard is what was heard since the last call, sorted.
func (c *conversation) heard() []string {
	c.t.Helper()
	events, err := c.player.Heard()
	if err != nil {
		c.t.Error(err)
	}
	var texts []string
	for _, e := range events {
		texts = append(texts, e.String())
	}
	slices.Sort(texts)
	return texts
}

// TestShutdownIsSpread: streams end with UNAVAILABLE one after the other over the
// drain time, and nobody is let in meanwhile (ERR-14, H-20).
func TestShutdownIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t)
		defer c.player.Close()
		for _, actor := range []string{"c1", "c2", "c3", "c4"} {
			c.say(actor, "sub CDS a")
		}
		c.say("up", "resp CDS nonce=1 a@1")
		c.heard()

		begin := time.Now()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			c.relay.Close(8 * time.Second)
		}()
		const goodbye = `end UNAVAILABLE "xds-relay: shutting down; connect again, to another replica if there is one"`
		ended := 0
		for second := range 8 {
			c.player.Wait(time.Nanosecond)
			if ready, _ := c.relay.Ready(); ready {
				t.Errorf("%d s into its shutdown the relay is ready", second)
			}
			for _, text := range c.heard() {
				if text == "up < closed" && ended == 4 {
					continue // nobody is left to want anything
				}
				if ended++; !strings.HasSuffix(text, goodbye) {
					t.Errorf("heard %s, want %s", text, goodbye)
				}
			}
			if want := second/2 + 1; ended != want {
				t.Errorf("after %d s %d of 4 streams have ended, want %d", second, ended, want)
			}
			if second == 1 {
				err := c.player.Say("c9", xdstest.MustParse("c9", "sub CDS a"))
				if err == nil || !strings.Contains(err.Error(), "Error while dialing") {
					t.Errorf("a newcomer was told %v, want that nobody listens", err)
				}
			}
			c.player.Wait(time.Second - time.Nanosecond)
		}
		<-closed
		if took := time.Since(begin); took > 9*time.Second {
			t.Errorf("the relay took %v to close", took)
		}
	})
}

// TestReadiness: the relay is ready once it listens and ready_types are complete,
// and stays so without its upstream (ERR-14).
func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t)
		defer c.player.Close()
		if ready, why := c.relay.Ready(); !ready {
			t.Errorf("it listens, and is not ready: %s", why)
		}
		c.say("up", "down")
		c.player.Wait(time.Hour)
		if ready, why := c.relay.Ready(); !ready {
			t.Errorf("without its upstream it is not ready: %s", why)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, "downstream.ready_types=[CDS,LDS]")
		defer c.player.Close()
		for _, response := range []string{"resp CDS nonce=1 a@1", "resp LDS nonce=2"} {
			if ready, why := c.relay.Ready(); ready || !strings.Contains(why, "LDS") {
				t.Errorf("before %s: ready %v, %q", response, ready, why)
			}
			c.say("up", response)
		}
		if ready, why := c.relay.Ready(); !ready {
			t.Errorf("all types are complete, and it is not ready: %s", why)
		}
		c.say("up", "down")
		c.player.Wait(time.Hour)
		if ready, why := c.relay.Ready(); !ready {
			t.Errorf("without its upstream it is not ready: %s", why)
		}
	})
}

// TestStreamsPerConnection: a connection has no more streams than the limit, the
// next one waits for its turn, and those there are go on (VALID-8).
func TestStreamsPerConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, down := xdstest.NewNetwork(), xdstest.NewNetwork()
		controlPlane := xdstest.NewControlPlane(up.Listener())
		defer controlPlane.Stop()
		relay, err := play.StartRelay([]string{"downstream.max_streams_per_connection=2"}, up.Dial, down.Listener())
		if err != nil {
			t.Fatal(err)
		}
		defer relay.Stop()
		conn, err := grpc.NewClient("passthrough:///relay",
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(down.Dial))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		client := discovery.NewAggregatedDiscoveryServiceClient(conn)
		open := func(ctx context.Context) error {
			stream, err := client.DeltaAggregatedResources(ctx)
			if err != nil {
				return err
			}
			return stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xdstest.TypeURL("CDS"), ResourceNamesSubscribe: []string{"a"}})
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first, hangUp := context.WithCancel(ctx)
		for _, ctx := range []context.Context{first, ctx} {
			if err := open(ctx); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait() // until the client knows the limit
		short, giveUp := context.WithTimeout(ctx, 5*time.Second)
		defer giveUp()
		if err := open(short); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a third stream: %v, want it to wait", err)
		}
		hangUp()
		if err := open(ctx); err != nil {
			t.Errorf("a stream that found room: %v", err)
		}
	})
}

// once is a relay that is stopped once, however often it is told to stop.
type once struct {
	*relay.Relay
	stop func()
}

func (o once) Stop() { o.stop() }
