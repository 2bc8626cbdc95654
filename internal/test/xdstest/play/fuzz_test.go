package play

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// FuzzUpstreamProgram: whatever a control plane sends, in whatever order, the relay
// does not panic, falls quiet, answers each response of a type it has subscribed to
// exactly once (UP-4), and tells clients nothing that is malformed, that no control
// plane has sent (G1), or that something is gone which they have not asked for and
// which never was (G4).
//
// The input is a program: a byte that chooses the relay, then steps. Bytes of a
// response are protobuf as they are, so that any message there is can be found.
func FuzzUpstreamProgram(f *testing.F) {
	var relays []*config.Config
	for _, set := range [][]string{
		{},
		{"upstream.mode=sotw"},
		{"cache.mass_removal_guard.fraction=0.3", "cache.mass_removal_guard.min=1"},
		{"upstream.initial_versions=never", "upstream.chunk_marker=relay"},
		{"upstream.mode=sotw", "cache.mass_removal_guard.fraction=0.3", "cache.mass_removal_guard.min=1", "downstream.max_response_bytes=512"},
	} {
		c, err := config.Load("", slices.Concat(Calm, set))
		if err != nil {
			f.Fatal(err)
		}
		relays = append(relays, c)
	}
	for relay := range relays {
		for _, seed := range fuzzSeeds {
			f.Add(assemble(f, byte(relay), relays[relay].Upstream.Mode == config.UpstreamModeSotW, seed))
		}
	}
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		program := []byte{byte(seed)}
		for range 40 {
			program = append(program, []byte{stepCompose, stepCompose, stepCompose, stepAck, stepWait, stepEnd, stepClient}[random.IntN(7)])
			for range random.IntN(12) {
				program = append(program, byte(random.Uint32()))
			}
		}
		f.Add(program)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 1<<14 {
			return
		}
		w := newFuzzWorld(t, relays[int(data[0])%len(relays)])
		w.run(data[1:])
	})
}

// fuzzSeeds are programs in words: a step is a response, or what another step is
// called.
var fuzzSeeds = [][]string{
	{"resp CDS nonce=1 version=1 a@1{eds} b@1", "ack", "resp EDS nonce=2 version=1 a@1 b@1", "ack", "resp CDS nonce=3 version=2 a@2{eds}", "wait"},
	{"resp CDS nonce=1 version=1 a@1 b@1", "ack", "end", "wait", "resp CDS nonce=2 version=2 b@1", "ack", "end", "wait", "resp CDS nonce=3 version=2 b@1"},
	{"resp FOO nonce=1 version=1 x@1[y,z](5s) w@1", "ack", "resp FOO nonce=2 version=1 x@1~(9s)", "wait", "wait", "resp FOO nonce=3 version=2 y@1"},
	{"resp VHDS nonce=1 version=1 r/v@1[r/w]", "resp VHDS nonce=2 version=1 r/x[r/w]~", "ack", "client", "resp VHDS nonce=3 version=1 r/v@2"},
	{"resp EDS nonce=1 version=1 a@1{do_not_cache} b@1", "ack", "client", "resp EDS nonce=2 version=1 a@1{do_not_cache}", "wait"},
	{"resp CDS nonce=1 version=1 a@1 a@2 b@1^^ c@1:LDS", "resp CDS nonce=2 version=1 a@1", "ack", "resp EDS nonce=3 version=1 !a=NOT_FOUND !b=UNAVAILABLE"},
	{"resp CDS nonce=1-1 version=1 id=xds-relay/up a@1", "resp CDS nonce=2-0 version=1 b@1", "ack", "wait", "resp CDS nonce=3-0"},
}

// The steps of a program.
const (
	stepResponse = iota
	stepAck
	stepWait
	stepEnd
	stepClient
	stepCompose
	steps
)

// assemble makes a program of words.
func assemble(f *testing.F, relay byte, sotw bool, words []string) []byte {
	f.Helper()
	program := []byte{relay}
	for _, word := range words {
		switch word {
		case "ack":
			program = append(program, stepAck)
		case "wait":
			program = append(program, stepWait, 100)
		case "end":
			program = append(program, stepEnd)
		case "client":
			program = append(program, stepClient, 3)
		default:
			c, err := xdstest.ParseCommand("up", word)
			if err != nil {
				f.Fatal(err)
			}
			m, err := c.Response(sotw)
			if err != nil {
				f.Fatal(err)
			}
			data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			program = append(program, stepResponse, 0)
			program = append(binary.BigEndian.AppendUint16(program, uint16(len(data))), data...)
		}
	}
	return program
}

// fuzzWorld is a relay with clients of all kinds, and what it must not forget.
type fuzzWorld struct {
	t *testing.T
	*player
	events []string
	nonces int // of composed responses

	subscribed map[string]map[string]bool // by upstream actor, the types asked for on its stream
	rejected   map[string]bool            // actor and type: the last response was
	sent       map[string]bool            // type, and the body of what upstream has sent
	names      map[string]bool            // type and name of it
	asked      map[string]bool            // actor, type and name
	owed       map[*client]map[string]bool
}

func newFuzzWorld(t *testing.T, c *config.Config) *fuzzWorld {
	p, err := start(c, false, new(xdstest.Transcript))
	if err != nil {
		t.Fatal(err)
	}
	w := &fuzzWorld{
		t: t, player: p, subscribed: map[string]map[string]bool{}, rejected: map[string]bool{},
		sent: map[string]bool{}, names: map[string]bool{}, asked: map[string]bool{}, owed: map[*client]map[string]bool{},
	}
	p.told = w.hears
	for _, line := range []string{
		"c1 open delta", "c1 sub CDS *", "c1 sub EDS a b", "c1 sub FOO x y",
		"c2 open sotw features=xds.config.supports-resource-ttl,xds.config.resource-in-sotw", "c2 req CDS", "c2 req EDS a", "c2 req FOO x",
		"c3 open delta features=xds.config.supports-resource-ttl", "c3 sub FOO *", "c3 sub EDS a", "c3 sub VHDS r/w r/x",
		"c4 open sotw", "c4 req CDS a b", "c4 req EDS",
	} {
		actor, text, _ := strings.Cut(line, " ")
		w.say(actor, text)
	}
	return w
}

func (w *fuzzWorld) say(actor, text string) {
	c := xdstest.MustParse(actor, text)
	for _, name := range c.Names {
		w.asked[actor+" "+c.TypeURL+" "+name] = true
	}
	if err := w.Say(actor, c); err != nil {
		w.t.Fatalf("%s > %s: %v", actor, text, err)
	}
	w.look()
}

// look takes in what the relay has said to the control plane.
func (w *fuzzWorld) look() {
	heard, fault := w.Heard()
	if fault != nil {
		w.t.Fatal(fault)
	}
	w.events = nil
	for _, e := range heard {
		if strings.HasPrefix(e.Actor, "c") {
			continue
		}
		w.events = append(w.events, e.String())
		words := strings.Fields(e.Text)
		switch words[0] {
		case "open":
			w.subscribed[e.Actor] = map[string]bool{}
		case "sub", "req":
			w.subscribed[e.Actor][xdstest.TypeURL(words[1])] = true
		}
	}
}

// hears checks what a client is told.
func (w *fuzzWorld) hears(c *client, m proto.Message) {
	var typeURL string
	var bodies []proto.Message
	switch r := m.(type) {
	case *discovery.DeltaDiscoveryResponse:
		typeURL = r.GetTypeUrl()
		for _, resource := range r.GetResources() {
			bodies = append(bodies, resource.GetResource())
		}
		for _, name := range r.GetRemovedResources() {
			// The names of a SotW control plane are in the bodies.
			if !w.asked[c.actor+" "+typeURL+" "+name] && !w.names[typeURL+" "+name] && w.config.Upstream.Mode != config.UpstreamModeSotW {
				w.t.Fatalf("%s is told that %q is gone, which it has not asked for, and which never was", c.actor, name)
			}
		}
	case *discovery.DiscoveryResponse:
		typeURL = r.GetTypeUrl()
		for _, body := range r.GetResources() {
			wrapper := new(discovery.Resource)
			if body.MessageIs(wrapper) {
				if err := body.UnmarshalTo(wrapper); err != nil {
					w.t.Fatal(err)
				}
				body = wrapper.GetResource()
			}
			bodies = append(bodies, body)
		}
	}
	for _, body := range bodies {
		if key := bodyKey(typeURL, body); !w.sent[key] {
			w.t.Fatalf("%s is told what nobody has sent: %s %v", c.actor, typeURL, body)
		}
	}
	if w.owed[c] == nil {
		w.owed[c] = map[string]bool{}
	}
	w.owed[c][typeURL] = true
}

func bodyKey(typeURL string, body proto.Message) string {
	data, _ := proto.MarshalOptions{Deterministic: true}.Marshal(body) // it was unmarshalled
	return typeURL + " " + string(data)
}

// run goes through a program.
func (w *fuzzWorld) run(program []byte) {
	next := func() (b byte) {
		if len(program) > 0 {
			b, program = program[0], program[1:]
		}
		return b
	}
	for n := 0; len(program) > 0 && n < 64; n++ {
		switch next() % steps {
		case stepResponse:
			stream, size := next(), int(next())<<8|int(next())
			size = min(size, len(program))
			w.respond(stream, program[:size])
			program = program[size:]
		case stepAck:
			w.ack()
		case stepWait:
			w.Wait(time.Duration(next()) * 100 * time.Millisecond)
		case stepEnd:
			w.end()
		case stepClient:
			w.churn(next())
		case stepCompose:
			stream, data := next(), w.compose(next)
			w.respond(stream, data)
		}
		w.settle()
		w.look()
	}
	w.ack()
	w.Wait(time.Minute)
	w.look()
}

// respond has the control plane say something on one of its streams.
func (w *fuzzWorld) respond(stream byte, data []byte) {
	if len(w.streams) == 0 {
		return
	}
	s := w.streams[int(stream)%len(w.streams)]
	var typeURL, nonce string
	var m proto.Message
	if s.sotw {
		r := new(discovery.DiscoveryResponse)
		if proto.Unmarshal(data, r) != nil {
			return // gRPC would end the stream
		}
		for _, body := range r.GetResources() {
			w.sent[bodyKey(r.GetTypeUrl(), body)] = true
			wrapper := new(discovery.Resource)
			if body.MessageIs(wrapper) && body.UnmarshalTo(wrapper) == nil {
				if misnamed(wrapper) {
					return
				}
				w.sent[bodyKey(r.GetTypeUrl(), wrapper.GetResource())] = true
			}
		}
		m, typeURL, nonce = r, r.GetTypeUrl(), r.GetNonce()
	} else {
		r := new(discovery.DeltaDiscoveryResponse)
		if proto.Unmarshal(data, r) != nil {
			return
		}
		for _, resource := range r.GetResources() {
			if misnamed(resource) {
				return
			}
			w.sent[bodyKey(r.GetTypeUrl(), resource.GetResource())] = true
			w.names[r.GetTypeUrl()+" "+resource.GetName()+resource.GetResourceName().GetName()] = true
		}
		m, typeURL, nonce = r, r.GetTypeUrl(), r.GetNonce()
	}
	expected := w.subscribed[s.actor][typeURL] && nonce != ""
	w.receive(s, m)
	w.settle()
	w.look()
	if slices.Contains(w.events, s.actor+" < closed") {
		return // it is opened again, for a reason of ours
	}
	w.answered(s, typeURL, nonce, expected)
}

// misnamed: a resource has another name than its body says. To a SotW client, who knows
// nothing but bodies, two such resources may have one name; that is the control
// plane's doing, and the relay looks into no body to mend it (VALID-2).
func misnamed(r *discovery.Resource) bool {
	body := r.GetResource()
	name, ok := cache.BodyName(cache.TypeURL(body.GetTypeUrl()), body.GetValue())
	return body != nil && (!ok || name != r.GetName()+r.GetResourceName().GetName())
}

// answered: there is exactly one ACK or NACK for a response that expects one.
func (w *fuzzWorld) answered(s *stream, typeURL, nonce string, expected bool) {
	ack := fmt.Sprintf("%s < ack %s %s", s.actor, xdstest.ShortName(typeURL), xdstest.Quote(nonce))
	nack := fmt.Sprintf("%s < nack %s %s", s.actor, xdstest.ShortName(typeURL), xdstest.Quote(nonce))
	repeated := w.rejected[s.actor+typeURL]
	count := 0
	for _, event := range w.events {
		mine := event == ack || strings.HasPrefix(event, nack+" ")
		if s.sotw {
			mine = strings.HasPrefix(event, s.actor+" < req "+xdstest.ShortName(typeURL)+" ") && strings.Contains(event, " nonce="+xdstest.Quote(nonce))
		}
		if mine {
			count++
			w.rejected[s.actor+typeURL] = s.sotw && strings.Contains(event, " err=")
		}
	}
	switch {
	case count == 0 && repeated: // the same rejection waits a while (NACK-7)
	case expected && count != 1, !expected && nonce != "" && count != 0:
		w.t.Fatalf("a response of %q with nonce %q on %s is answered %d times (subscribed: %v):\n%s", typeURL, nonce, s.actor, count, expected, strings.Join(w.events, "\n"))
	}
}

// compose makes a response of few bytes, so that what matters is found sooner than
// by changing bits of protobuf: known names, in all forms that a resource has.
func (w *fuzzWorld) compose(next func() byte) []byte {
	types := []string{"CDS", "EDS", "FOO", "VHDS", "LDS"}
	names := []string{"a", "b", "x", "y", "z", "r/w", "r/x", "*"}
	first := next()
	w.nonces++
	text := fmt.Sprintf("resp %s nonce=n%d-%d version=v%d", types[int(first&0xf)%len(types)], w.nonces, first>>4&1, first>>5&1)
	sotw := len(w.streams) > 0 && w.streams[0].sotw
	for n := next() % 6; n > 0; n-- {
		form, name := next(), next()
		word := names[int(name)%len(names)]
		other := names[int(name>>4)%len(names)]
		switch form >> 5 {
		case 0:
			word += "@1"
		case 1:
			word += "@2"
		case 2:
			word += "@1=" + string('a'+rune(form&3)) + "(5s)"
		case 3:
			word += fmt.Sprintf("@%d[%s]", form&3, other)
		case 4:
			word += fmt.Sprintf("@%d[%s]~", form&1, other)
		case 5:
			word += fmt.Sprintf("@%d~", form&3) + []string{"", "(3s)"}[form>>4&1]
		case 6:
			word += []string{"@1{do_not_cache}", "@2{do_not_cache}", "@1^", "@1:LDS"}[form&3]
		case 7:
			word = []string{"-" + word, "!" + word + "=NOT_FOUND", "!" + word + "=UNAVAILABLE", "-" + other}[form&3]
			if sotw && word[0] == '-' {
				continue
			}
		}
		text += " " + word
	}
	c := xdstest.MustParse("up", text)
	m, err := c.Response(sotw)
	if err != nil {
		w.t.Fatal(err)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		w.t.Fatal(err)
	}
	return data
}

// ack has all clients accept what they were told.
func (w *fuzzWorld) ack() {
	for _, c := range w.clients {
		for typeURL := range w.owed[c] {
			if c.session != nil {
				w.say(c.actor, "ack "+xdstest.ShortName(typeURL))
			}
		}
		delete(w.owed, c)
	}
}

// end breaks the main stream.
func (w *fuzzWorld) end() {
	if len(w.streams) == 0 {
		return
	}
	s := w.streams[0]
	w.ended(s, []error{errLost, io.EOF}[len(w.sent)%2])
}

// churn has a client come, go or ask for more.
func (w *fuzzWorld) churn(what byte) {
	const actor = "c5"
	if c := w.client(actor); c.session == nil {
		w.say(actor, []string{"open delta", "open sotw"}[what%2])
		maps.DeleteFunc(w.asked, func(key string, _ bool) bool { return strings.HasPrefix(key, actor+" ") })
		delete(w.owed, c)
		return
	}
	request := []string{"sub", "req"}[boolToInt(w.client(actor).dialogue.SotW)]
	switch what % 5 {
	case 0:
		w.say(actor, "close")
	case 1:
		w.say(actor, request+" CDS *")
	case 2:
		w.say(actor, request+" FOO x z")
	case 3:
		w.say(actor, request+" EDS a")
	case 4:
		w.say(actor, request+" VHDS r/w")
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
