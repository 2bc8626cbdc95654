package xdstest_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
	"github.com/xds-relay/xds-relay/internal/test/xdstest/play"
)

// downstreamRules are the rules of the server side that the relay keeps.
var downstreamRules = slices.Concat(
	numbered("DOWN-DELTA", 1, 20),
	numbered("DOWN-SOTW", 1, 15),
	numbered("TRANSLATE", 1, 14),
	numbered("WILD", 1, 16),
	numbered("NAME", 1, 14), numbered("NAME", 18, 18),
	numbered("NACK", 1, 1), numbered("NACK", 3, 5), numbered("NACK", 7, 7), numbered("NACK", 9, 9),
	numbered("ORDER", 1, 13),
	numbered("NODE", 1, 17),
	numbered("REST", 1, 10),
	numbered("CSDS", 1, 7),
	numbered("LRS", 1, 9),
	numbered("V2", 1, 4),
)

const through = "transcripts have no words for services that go through; internal/relay"

// downstreamReasons are why a rule has no transcript, or not all of it, and what
// shows it instead.
var downstreamReasons = map[string]string{
	"TRANSLATE-13": "transcripts have no word for canary, which upstream.TestDecodeSotW sees dropped; " +
		"that none leaves is part of downstream.TestFrameIsTheMessage, which compares whole messages",
	"REST-1":   "transcripts speak gRPC, and not HTTP; TestBadPolls and TestPoll of internal/relay, TestREST of internal/test/e2e/envoy, service.TestRESTPath",
	"REST-2":   "as REST-1; xdsjson.TestRequest, xdsjson.TestBadRequest, xdsjson.TestResponse, FuzzRequest",
	"REST-3":   "as REST-1; xdsjson.TestUnknownType, downstream.TestNoFormInJSON",
	"REST-4":   "as REST-1; TestPoll",
	"REST-5":   "as REST-1; TestPoll, TestREST",
	"REST-6":   "as REST-1; TestPoll, TestPollOfAnEarlySet",
	"REST-7":   "as REST-1; TestBadPolls, TestPollOfSecrets, TestRulesForPolls, TestPollsAreFew, downstream.FuzzPoll, authz.TestPollsAreMeant",
	"REST-8":   "as REST-1; TestPollWaits",
	"REST-9":   "as REST-1; TestPollKeepsInterest, TestPollerIsBehind",
	"WILD-14":  "does not arise: WILD-13's two streams are always used (upstream/session/plan.go), so membership needs no guess",
	"NACK-9":   "a log and counters are no words between peers; TestOnlyTheLogTells",
	"NODE-16":  "transcripts have no certificates; downstream.TestStreamsEndWithTheirCertificate and TestPollsMoveToAnotherConnection",
	"CSDS-1":   "transcripts have no words for what tools ask: TestGRPCDebug of cmd/xds-relay; TestTools and TestCSDSIsOff of internal/admin, csds.TestJSON",
	"CSDS-2":   "as CSDS-1; csds.TestOwnView",
	"CSDS-3":   "as CSDS-1; csds.TestOwnView and csds.TestWhichGroup, TestNACKsOfTheRelay of internal/relay",
	"CSDS-4":   "as CSDS-1; csds.TestClientViews and csds.TestMatchers, TestClientsInCSDS of internal/relay",
	"CSDS-5":   "as CSDS-1; csds.TestBodies and csds.TestBodiesOnRequest, TestCSDSShowsNoSecret of internal/test/authz",
	"CSDS-6":   "what is read at one instant is in no message; csds.TestLargeAnswers, csds.TestCallsAreBounded and csds.TestWrongMatchers for the bounds",
	"CSDS-7":   "as CSDS-1; fanout.TestClientStates, and TestWhoIsLate of internal/admin for the metric",
	"LRS-1":    through + "; TestServicesAreListed and TestOwnServicesGoNowhere",
	"LRS-2":    through + "; TestCallGoesThrough, TestCallIsCancelled and TestCallsFollowTheControlPlane",
	"LRS-3":    through + "; TestCallsAndDiscoveryAreApart and TestControlPlaneReadsNoReports",
	"LRS-4":    through + "; TestLoadIsSummed, TestLoadOfGroups, TestLoadByNames, TestLoadFollowsTheControlPlane and TestLoadIsRefused",
	"LRS-5":    through + "; TestLoadIsSummed; loadreport.TestSum, TestSumTellsApart, TestRoom and TestTwin",
	"LRS-6":    through + "; TestLoadWaitsForTheControlPlane, TestLoadComesBack and TestLoadEnds; loadreport.TestGiveBack",
	"LRS-7":    through + "; TestLoadIsSummed; loadreport.TestSum and TestTwin",
	"LRS-8":    through + "; TestLoadIsSummed and TestLoadWaitsForTheControlPlane",
	"LRS-9":    through + "; TestRulesForCalls and TestCallClaimsAnIdentity",
	"NAME-14":  "what is in a collection is no part of a name",
	"ORDER-10": "there is no claim to find wrong",
	"V2-1":     "transcripts for methods and messages; service.TestV2, downstream.TestRequestsOfV2 and FuzzV2Requests against the messages of v2, e2e.TestV2 with a client made of them",
	"V2-2":     "transcripts have no words for bytes that a type does not know; e2e.TestV2",
	"NODE-5":   "what is documented beside groups.key is no words between peers; the line at start: TestOnlyTheLogTells",
}

// numbered are the rules of a section from one number to another.
func numbered(section string, from, to int) []string {
	var ids []string
	for n := from; n <= to; n++ {
		ids = append(ids, section+"-"+strconv.Itoa(n))
	}
	return ids
}

// TestOnlyTheLogTells: the group key in use at start (NODE-5), and each rejection
// with client, nonce and message (NACK-9).
func TestOnlyTheLogTells(t *testing.T) {
	var log logBuffer
	factory := func(set []string, dial func(context.Context, string) (net.Conn, error), listen net.Listener) (xdstest.Relay, error) {
		c, err := config.Load("", slices.Concat(play.Calm, []string{"groups.key=[cluster]", "upstream.node_mode=static"}, set))
		if err != nil {
			return nil, err
		}
		r, err := relay.New(c, relay.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Dial: dial, Random: play.Random})
		if err != nil {
			return nil, err
		}
		r.Serve(listen)
		return play.Whole{Relay: r}, nil
	}
	xdstest.Run(t, "testdata/nack/upstream-is-acked-without-asking-clients.txt", xdstest.Live(factory))
	lines := log.lines()
	for _, words := range [][]string{
		{"msg=groups", "key=cluster"},
		{"msg=\"client rejected a response\"", "node_id=c1", "a is beyond me", "nonce=CDS.1.1-0"},
		{"msg=\"client rejected a response\"", "node_id=c2", "me too", "nonce=CDS.1.1-0"},
	} {
		if !slices.ContainsFunc(lines, func(line string) bool {
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
		}) {
			t.Errorf("no line has all of %q in\n%s", words, strings.Join(lines, "\n"))
		}
	}
	if n := strings.Count(strings.Join(lines, "\n"), "client rejected"); n != 2 {
		t.Errorf("%d rejections were logged, want 2", n)
	}
}

// logBuffer is a log that may be written to from anywhere.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Split(strings.TrimSpace(b.buf.String()), "\n")
}
