package downstream

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/downstream/session"
)

const mib = 1 << 20

// desk is an account with a clock, and clients that send.
type desk struct {
	t     *testing.T
	in    *inflight
	now   time.Time
	ended map[string]lateness // the requests that were ended
	most  int
}

func newDesk(t *testing.T, bound int) *desk {
	return &desk{t: t, in: newInflight(bound), now: time.Unix(1, 0), ended: make(map[string]lateness)}
}

// sender is a stream on a connection, with a request of some size to send.
type sender struct {
	d    *desk
	h    *holder
	id   uint32
	name string
	left int // of the request
}

func (d *desk) sender(h *holder, id uint32, size int) *sender {
	s := &sender{d: d, h: h, id: id, name: fmt.Sprintf("%p/%d", h, id), left: size}
	d.in.join(h, id, func(e *session.End) {
		for why := range turnOver + 1 {
			if e.Message == halfSent(why).Message {
				d.ended[s.name] = why
			}
		}
	})
	return s
}

// begin sends the header of a request and n bytes.
func (s *sender) begin(n int) bool {
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(s.left))
	return s.write(append(b, make([]byte, n)...), n)
}

func (s *sender) send(n int) bool { return s.write(zeros[:n], n) }

var zeros = make([]byte, 16*mib)

// write reports whether the connection may be read on.
func (s *sender) write(b []byte, n int) bool {
	s.left -= n
	s.d.now = s.d.now.Add(time.Microsecond)
	for len(b) > 0 {
		part := b[:min(len(b), 16<<10)]
		b = b[len(part):]
		s.d.in.piece(s.h, s.id, len(part), part, s.d.now)
	}
	may, _ := s.d.in.mayRead(s.h, s.d.now)
	s.d.most = max(s.d.most, s.d.in.used)
	return may
}

// goesOn reports whether a sender that waited may go on now.
func (s *sender) goesOn() bool {
	may, _ := s.d.in.mayRead(s.h, s.d.now)
	return may
}

// over reports whether its request was ended.
func (s *sender) over() bool {
	_, ended := s.d.ended[s.name]
	return ended
}

// taken says that the relay takes in the request, which has come.
func (s *sender) taken(size int) { s.d.in.takenIn(s.h, s.id, size+grpcHeader) }

// after lets time pass.
func (d *desk) after(t time.Duration) {
	for end := d.now.Add(t); d.now.Before(end); {
		d.now = d.now.Add(lookEvery)
		for _, s := range d.in.tick(d.now) {
			s.end(halfSent(s.why))
		}
		d.sum()
	}
}

// sum checks the account.
func (d *desk) sum() {
	d.t.Helper()
	all := 0
	for h := range d.in.holders {
		one := 0
		for _, p := range h.parts {
			one += partWeight + p.half + p.whole
		}
		if one != h.used {
			d.t.Fatalf("a connection uses %d, and its parts %d", h.used, one)
		}
		all += one
	}
	if all != d.in.used {
		d.t.Fatalf("%d bytes are used, and connections use %d", d.in.used, all)
	}
}

func (d *desk) wants(what string, got, want bool) {
	d.t.Helper()
	if got != want {
		d.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// of returns a connection of somebody's.
func of(name string) *holder {
	h := newHolder()
	h.name = name
	return h
}

func newHolder() *holder {
	h := &holder{}
	h.init()
	return h
}

// TestInflight_LastByte: requests that lack their last byte, on connections of their own, take no more than the
// bound, and end when others wait. Those that wait go on then, and nobody else is ended.
func TestInflight_LastByte(t *testing.T) {
	d := newDesk(t, 64*mib)
	var stuck []*sender
	for range 2 {
		s := d.sender(newHolder(), 1, 11*mib)
		d.wants("there is room", s.begin(11*mib-1), true)
		stuck = append(stuck, s)
	}
	first := d.sender(newHolder(), 1, 10*mib)
	d.wants("the first that has to wait has its turn", first.begin(3*mib), true)
	second := d.sender(newHolder(), 1, 16*mib)
	d.wants("the second waits", second.begin(2*mib), false)
	small := d.sender(newHolder(), 1, 15<<10)
	d.wants("a small request passes", small.begin(15<<10-1), true)
	for first.left > 0 {
		d.after(lookEvery)
		d.wants("the first goes on", first.send(min(first.left, 2*mib)), true)
	}
	first.taken(10 * mib)
	d.wants("then the second does", second.goesOn() && second.send(4*mib), true)
	d.wants("a third waits", d.sender(newHolder(), 1, 16*mib).begin(3*mib), false)
	for range 17 {
		second.send(mib / 4)
		d.after(lookEvery)
	}
	for _, s := range stuck {
		if why, ended := d.ended[s.name]; !ended || why != dripping {
			t.Errorf("what lacks its last byte: ended %v, why %v", ended, why)
		}
	}
	if d.most > d.in.bound {
		t.Errorf("%d bytes were used, more than the bound", d.most)
	}
	if len(d.ended) != 3 || !small.over() { // it lacks its last byte, too
		t.Errorf("ended are %v", d.ended)
	}
}

// TestInflight_OneAlone: a request that nobody waits for goes on however slowly it comes, and ends when nothing comes.
func TestInflight_OneAlone(t *testing.T) {
	d := newDesk(t, 64*mib)
	s := d.sender(newHolder(), 1, mib)
	s.begin(10)
	for range 20 {
		d.after(silentAfter - lookEvery)
		d.wants("it goes on", s.send(1), true)
	}
	if len(d.ended) > 0 {
		t.Fatal("it is ended")
	}
	d.after(silentAfter)
	if why, ended := d.ended[s.name]; !ended || why != silent {
		t.Error("it is not ended for its silence")
	}
	d.in.leave(s.h, s.id)
	s.send(1000)
	if d.in.used != partWeight {
		t.Errorf("what gRPC throws away counts: %d", d.in.used)
	}
	d.after(silentAfter)
	if d.in.used != 0 || len(d.in.holders) != 0 {
		t.Errorf("%d bytes and %d connections are left", d.in.used, len(d.in.holders))
	}
}

// TestInflight_OneConnection: a connection that takes half of the bound waits for itself; of its requests, those
// of which nothing came for longest end, until there is room.
func TestInflight_OneConnection(t *testing.T) {
	d := newDesk(t, 64*mib)
	h := newHolder()
	old, middle, young := d.sender(h, 1, 16*mib), d.sender(h, 3, 16*mib), d.sender(h, 5, 16*mib)
	old.begin(16*mib - 1)
	middle.begin(15 * mib)
	d.wants("it waits", young.begin(2*mib), false)
	d.wants("another one goes on", d.sender(newHolder(), 1, 16*mib).begin(mib), true)
	d.after(2*slowAfter + lookEvery)
	if !old.over() || middle.over() || young.over() {
		t.Errorf("ended are %v", d.ended)
	}
	d.wants("it goes on", young.goesOn(), true)
}

// TestInflight_Parts: a request in many small frames takes more memory than its bytes, and cannot take more than half.
func TestInflight_Parts(t *testing.T) {
	d := newDesk(t, 64*mib)
	s := d.sender(newHolder(), 1, 16*mib)
	s.begin(0)
	n := 0
	for s.send(1) {
		n++
	}
	if most := 32 * mib / 64; n > most {
		t.Errorf("%d frames of a byte were read", n)
	}
	d.after(2*slowAfter + lookEvery)
	if len(d.ended) != 1 || d.in.used > partWeight {
		t.Errorf("ended are %v, %d bytes are used", d.ended, d.in.used)
	}
	d.wants("it goes on", s.goesOn(), true)
}

// TestInflight_Pardon: a connection that waits reads a few bytes now and then, so that gRPC sees that it is alive, and
// its requests are not ended meanwhile. Then it waits on, in its place.
func TestInflight_Pardon(t *testing.T) {
	d := newDesk(t, 64*mib)
	full := d.sender(newHolder(), 1, 23*mib) // it waits for the relay to take it in
	full.begin(23 * mib)
	going := d.sender(newHolder(), 1, 200*mib)
	d.wants("this one has its turn", going.begin(3*mib), true)
	s := d.sender(newHolder(), 1, 16*mib)
	d.wants("it waits", s.begin(mib), false)
	pardons := 0
	for range 60 {
		going.send(16 << 10)
		d.after(lookEvery)
		if may, pardon := d.in.mayRead(s.h, d.now); may {
			pardons++
			d.wants("it is a pardon", pardon, true)
			d.wants("it waits on", s.send(pardonBytes), false)
		}
	}
	if len(d.ended) > 0 {
		t.Errorf("ended are %v", d.ended)
	}
	if want := 60 * time.Second / pardonAfter; pardons != int(want) {
		t.Errorf("it read %d times, want %d", pardons, want)
	}
}

// attacker sends as much as it may of requests that never come to an end, on any number of streams.
type attacker struct {
	*sender
	size, first int
}

func (d *desk) attacker(h *holder, size, first int) *attacker {
	a := &attacker{d.sender(h, 1, size), size, first}
	a.begin(first)
	return a
}

// again sends on, without the last byte, and begins again on another stream where one was ended.
func (a *attacker) again() {
	for range 1000 {
		switch {
		case !a.goesOn():
			return
		case a.over():
			a.d.in.over(a.h, a.id)
			fallthrough
		case a.left == 1:
			a.sender = a.d.sender(a.h, a.id+2, a.size)
			a.begin(a.first)
		default:
			a.send(min(a.left-1, 4<<10))
		}
	}
}

// finishes reports whether a request comes to its end within a time, while others attack.
func (s *sender) finishes(within time.Duration, attackers ...*attacker) bool {
	for end := s.d.now.Add(within); s.d.now.Before(end) && s.left > 0 && !s.over(); {
		s.d.after(lookEvery)
		for _, a := range attackers {
			a.again()
		}
		for s.left > 0 && s.goesOn() && s.send(min(s.left, 4<<10)) {
		}
	}
	return s.left == 0
}

// TestInflight_Bound: the memory of many connections that wait, and are pardoned, does not grow.
func TestInflight_Bound(t *testing.T) {
	d := newDesk(t, 4*mib)
	const connections = 200
	var all []*attacker
	for range connections {
		all = append(all, d.attacker(newHolder(), 16*mib, 16<<10))
	}
	for range 10 * time.Minute / lookEvery {
		d.after(lookEvery)
		for _, a := range all {
			switch may, pardon := d.in.mayRead(a.h, d.now); {
			case pardon:
				d.in.piece(a.h, a.id, 0, zeros[:pardonBytes], d.now)
			case may:
				a.again()
			}
		}
		d.most = max(d.most, d.in.used)
	}
	if most := d.in.bound + connections*(17<<10); d.most > most { // a frame each beyond it
		t.Errorf("%d KiB were used of %d", d.most>>10, d.in.bound>>10)
	}
}

// TestInflight_Turns: a large request comes to its end, whatever a few others keep half-sent: many requests each, or
// some that lack less than it does. It has its turn after one of each of them.
func TestInflight_Turns(t *testing.T) {
	for name, attack := range map[string]func(*desk) []*attacker{
		"two with many streams": func(d *desk) []*attacker {
			return []*attacker{d.attacker(of("a"), 200<<10, 32<<10), d.attacker(of("b"), 200<<10, 32<<10)}
		},
		"two large, and two with little left": func(d *desk) []*attacker {
			return []*attacker{
				d.attacker(of("a"), 16*mib, 800<<10), d.attacker(of("a"), 16*mib, 800<<10),
				d.attacker(of("b"), 48<<10, 32<<10), d.attacker(of("b"), 48<<10, 32<<10),
			}
		},
		"one with many connections": func(d *desk) (all []*attacker) {
			for range 150 {
				all = append(all, d.attacker(of("a"), 200<<10, 16<<10))
			}
			return all
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, 4*mib)
			all := attack(d)
			for range 3 {
				for _, a := range all {
					a.again()
				}
			}
			s := d.sender(of("victim"), 1, 300<<10)
			d.wants("it waits", s.begin(64<<10), false)
			if !s.finishes(3*(slowAfter+16*time.Second), all...) {
				t.Errorf("%d KiB are left, ended: %v", s.left>>10, s.over())
			}
		})
	}
}

// TestInflight_Small: below the bound small requests pass, and at the bound a frame that has begun is read to its end.
func TestInflight_Small(t *testing.T) {
	d := newDesk(t, 4*mib)
	for range 3 {
		d.sender(newHolder(), 1, 16*mib).begin(mib)
	}
	h := newHolder()
	s := d.sender(h, 1, 8<<10)
	d.wants("without room it waits", s.begin(4<<10), false)
	h.within = true
	d.wants("within a frame it goes on", s.goesOn(), true)
}

// TestInflight_Whole: requests that are whole count while the relay does not take them in, except a few. What each
// took is free when it is taken in.
func TestInflight_Whole(t *testing.T) {
	d := newDesk(t, 4*mib)
	s := d.sender(newHolder(), 1, 95)
	for range 100 {
		s.left = 95
		s.begin(95)
	}
	first := d.in.used
	if least := 100*164 - 5000; first < least {
		t.Fatalf("%d bytes are used, want %d", first, least)
	}
	for range 50 {
		s.taken(95)
	}
	if left := d.in.used; left < first/4 || left > first*3/4 {
		t.Errorf("of %d bytes %d are used when half are taken in", first, left)
	}
	for range 50 {
		s.taken(95)
	}
	if n := s.h.loose.Load(); d.in.used != 0 || n != 0 {
		t.Errorf("%d and %d bytes are left", d.in.used, n)
	}
}

// TestInflight_Wake: when there is room again, all that wait go on, at the next tick at the latest.
func TestInflight_Wake(t *testing.T) {
	d := newDesk(t, 4*mib)
	large := d.sender(newHolder(), 1, 2*mib)
	large.begin(1520 << 10)
	going := d.sender(newHolder(), 1, mib)
	d.wants("this one has its turn", going.begin(100<<10), true)
	var all []*sender
	for range 45 {
		s := d.sender(newHolder(), 1, 40<<10)
		d.wants("it waits", s.begin(20<<10), false)
		all = append(all, s)
	}
	d.in.over(large.h, 1)
	for range 3 {
		for _, s := range all {
			select {
			case <-s.h.wake:
				s.goesOn()
			default:
			}
		}
		d.after(lookEvery)
	}
	if n := len(d.in.waiting); n > 0 {
		t.Errorf("%d are not woken", n)
	}
}

// TestInflight_Unknown: of a stream that no handler has, gRPC throws the bytes away; until that is known they count.
func TestInflight_Unknown(t *testing.T) {
	d := newDesk(t, 4*mib)
	h := newHolder()
	s := d.sender(h, 1, 16*mib)
	delete(h.streams, 1)
	s.begin(32 << 10)
	if d.in.used < 32<<10 {
		t.Error("it does not count")
	}
	s.send(mib)
	if d.in.used > partWeight {
		t.Errorf("%d bytes are used", d.in.used)
	}
	s.id = 3
	s.left = 3000
	s.begin(3000)
	d.in.over(h, 3)
	if d.in.used > partWeight {
		t.Errorf("%d bytes are used of a request that nobody takes in", d.in.used)
	}
}

// TestInflight_Games: whatever clients do, the account is right, the bound holds, each request of a client that
// goes on sending comes to its end, and nothing is left.
func TestInflight_Games(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := newDesk(t, 64*mib)
		var all []*sender
		waits := make(map[*holder]bool)
		for range 12 {
			h := newHolder()
			for id := range 1 + r.IntN(3) {
				all = append(all, d.sender(h, uint32(2*id+1), 1+r.IntN(16*mib)))
			}
		}
		good := make(map[*sender]bool)
		for _, s := range all {
			good[s] = s.h != all[0].h && s.h != all[len(all)-1].h // those of the first and the last stop half way
			waits[s.h] = !s.begin(0)
		}
		done := 0
		for step := 0; step < 4_000_000 && done < len(all); step++ {
			if step%500 == 0 {
				d.after(lookEvery)
			}
			s := all[r.IntN(len(all))]
			if waits[s.h] {
				waits[s.h] = !s.goesOn()
				continue
			}
			_, ended := d.ended[s.name]
			switch {
			case s.left == 0:
			case ended:
				s.left, good[s] = 0, false
				d.in.leave(s.h, s.id)
				done++
			case good[s] || s.left > mib:
				waits[s.h] = !s.send(min(s.left, 1+r.IntN(16<<10)))
				if s.left == 0 {
					s.taken(16 * mib)
					d.in.leave(s.h, s.id)
					done++
				}
			}
		}
		if done < len(all) {
			t.Errorf("seed %d: %d of %d requests came to an end", seed, done, len(all))
		}
		if most := d.in.bound + 12*4*readFreely; d.most > most {
			t.Errorf("seed %d: %d bytes were used, %d more than the bound", seed, d.most, d.most-d.in.bound)
		}
		d.after(3 * silentAfter)
		if d.in.used != 0 || len(d.in.waiting) != 0 || d.in.turn.of != nil {
			t.Errorf("seed %d: %d bytes are left, %d wait", seed, d.in.used, len(d.in.waiting))
		}
	}
}

// TestInflight_Through: the messages of a call that goes through wait for the control plane for as long as it likes, and
// hold up no other stream of the connection. Only what is longer than the call's window counts, which can come only while
// the relay reads.
func TestInflight_Through(t *testing.T) {
	d := newDesk(t, mib)
	const size, calls = 9 << 10, 100
	h := newHolder()
	for id := uint32(1); id <= calls; id++ {
		s := d.sender(h, id, size)
		d.in.goesThrough(h, id)
		for range 6 {
			s.left = size
			d.wants("a message that waits is read on", s.begin(size), true)
		}
		s.left = size
		d.wants("so is a part of one", s.begin(size/2), true)
		d.sum()
	}
	if most := calls * partWeight; d.in.used != most {
		t.Errorf("calls that wait count for %d bytes, want %d", d.in.used, most)
	}
	d.after(time.Hour)
	if len(d.ended) > 0 {
		t.Errorf("calls that wait were ended: %v", d.ended)
	}
	other := d.sender(h, calls+1, 20<<10)
	d.wants("another stream is read on", other.begin(20<<10), true)
	other.taken(20 << 10)
	for id := uint32(1); id <= calls; id++ {
		for range 6 {
			d.in.takenIn(h, id, size+grpcHeader)
			d.sum()
		}
		d.in.piece(h, id, size-size/2, zeros[:size-size/2], d.now) // the rest of the last one
		d.in.takenIn(h, id, size+grpcHeader)
	}
	if d.sum(); d.in.used != 0 || len(h.parts) != 0 {
		t.Errorf("all is taken in, and %d bytes and %d parts are left", d.in.used, len(h.parts))
	}

	long := d.sender(h, 1, mib/4)
	long.begin(mib / 8)
	if want := partWeight + mib/8 + grpcHeader - window; d.in.used != want {
		t.Errorf("a long message counts for %d bytes, want %d", d.in.used, want)
	}
	d.after(time.Minute)
	d.wants("a long message that does not go on ends", long.over(), true)
}
