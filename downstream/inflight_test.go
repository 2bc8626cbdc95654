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
	ended map[string]bool // the requests that were ended: true if silent
	most  int
}

func newDesk(t *testing.T, bound int) *desk {
	return &desk{t: t, in: newInflight(bound), now: time.Unix(1, 0), ended: make(map[string]bool)}
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
	d.in.join(h, id, func(e *session.End) { d.ended[s.name] = e == nil })
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
	may := s.d.in.mayRead(s.h, n, s.d.now)
	s.d.most = max(s.d.most, s.d.in.used)
	s.d.sum()
	return may
}

// goesOn reports whether a sender that waited may go on now.
func (s *sender) goesOn() bool { return s.d.in.mayRead(s.h, 0, s.d.now) }

// after lets time pass.
func (d *desk) after(t time.Duration) {
	for end := d.now.Add(t); d.now.Before(end); {
		d.now = d.now.Add(lookEvery)
		for _, s := range d.in.tick(d.now) {
			if s.silent {
				s.end(nil)
			} else {
				s.end(new(session.End))
			}
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

// TestInflight_LastByte: requests that lack their last byte, on connections of their own, take no more than the
// bound, and end when others wait. Those that wait go on then, and nobody else is ended.
func TestInflight_LastByte(t *testing.T) {
	d := newDesk(t, 64*mib)
	var stuck []*sender
	for range 2 {
		s := d.sender(newHolder(), 1, 15*mib)
		d.wants("there is room", s.begin(15*mib-1), true)
		stuck = append(stuck, s)
	}
	first := d.sender(newHolder(), 1, 10*mib)
	d.wants("the first that has to wait is let go on", first.begin(3*mib), true)
	second := d.sender(newHolder(), 1, 16*mib)
	d.wants("the second waits", second.begin(mib), false)
	small := d.sender(newHolder(), 1, 15<<10)
	d.wants("a small request passes", small.begin(15<<10-1), true)
	for first.left > 0 {
		d.after(lookEvery)
		d.wants("the first goes on", first.send(min(first.left, mib)), true)
	}
	d.in.takenIn(first.h, 1)
	d.wants("then the second does", second.goesOn() && second.send(4*mib), true)
	d.wants("a third waits", d.sender(newHolder(), 1, 16*mib).begin(mib), false)
	for range slowAfter / lookEvery {
		second.send(mib)
		d.after(lookEvery)
	}
	for _, s := range stuck {
		if silent, ended := d.ended[s.name]; !ended || silent {
			t.Errorf("what lacks its last byte: ended %v, silent %v", ended, silent)
		}
	}
	if d.most > d.in.bound {
		t.Errorf("%d bytes were used, more than the bound", d.most)
	}
	if _, ended := d.ended[small.name]; len(d.ended) != 3 || !ended { // it lacks its last byte, too
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
	if silent := d.ended[s.name]; !silent {
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
	other := d.sender(newHolder(), 1, 16*mib)
	d.wants("another one waits for it", other.begin(mib), true)
	d.after(slowAfter + lookEvery)
	if _, ended := d.ended[old.name]; !ended || len(d.ended) != 1 {
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
	d.after(slowAfter + lookEvery)
	if len(d.ended) != 1 || d.in.used > partWeight {
		t.Errorf("ended are %v, %d bytes are used", d.ended, d.in.used)
	}
	d.wants("it goes on", s.goesOn(), true)
}

// TestInflight_Pardon: a connection that waits reads a frame now and then, so that gRPC sees that it is alive, and its
// requests are not ended meanwhile.
func TestInflight_Pardon(t *testing.T) {
	d := newDesk(t, 64*mib)
	full := newHolder()
	for id := range uint32(2) { // these wait for the relay to take them in
		s := d.sender(full, 2*id+1, 12*mib)
		s.begin(12 * mib)
		d.sender(newHolder(), 1, 3*mib).begin(3 * mib)
	}
	going := d.sender(newHolder(), 1, 16*mib)
	d.wants("this one is chosen", going.begin(3*mib), true)
	s := d.sender(newHolder(), 1, 16*mib)
	d.wants("it waits", s.begin(mib), false)
	pardons := 0
	for range 60 {
		going.send(16 << 10)
		d.after(lookEvery)
		if s.goesOn() {
			pardons++
			d.wants("a part of a frame", s.send(8<<10), true)
			d.wants("a frame", s.send(16<<10), false)
		}
	}
	if len(d.ended) > 0 {
		t.Errorf("ended are %v", d.ended)
	}
	if want := 60 * time.Second / pardonAfter; pardons != int(want) {
		t.Errorf("it read %d times, want %d", pardons, want)
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
					d.in.takenIn(s.h, s.id)
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
		if d.in.used != 0 || len(d.in.waiting) != 0 || d.in.going != nil {
			t.Errorf("seed %d: %d bytes are left, %d wait", seed, d.in.used, len(d.in.waiting))
		}
	}
}
