package downstream

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// heard writes down what a follower of frames tells, with the parts of a frame put together.
type heard struct {
	lines []string
	body  []byte
}

func (h *heard) piece(stream uint32, frame int, b []byte) {
	if frame > 0 {
		h.body = nil
		h.lines = append(h.lines, "")
	}
	h.body = append(h.body, b...)
	length := ""
	if frame > 0 {
		length = fmt.Sprint(frame)
	} else {
		_, _ = fmt.Sscanf(h.lines[len(h.lines)-1], "%s", &length)
	}
	h.lines[len(h.lines)-1] = fmt.Sprintf("%s on %d: %s", length, stream, h.body)
}

func (h *heard) opens()  { h.lines = append(h.lines, "opens") }
func (h *heard) resets() { h.lines = append(h.lines, "resets") }

func (h *heard) over(stream uint32) { h.lines = append(h.lines, fmt.Sprintf("over %d", stream)) }

// TestFrames: what belongs to which stream does not depend on how the bytes come.
func TestFrames(t *testing.T) {
	var wire, headers bytes.Buffer
	wire.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&wire, nil)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(hpack.NewEncoder(&headers).WriteField(hpack.HeaderField{Name: "a", Value: "b"}))
	check(f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}))
	check(f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true}))
	check(f.WriteData(1, false, []byte("one")))
	check(f.WriteDataPadded(3, false, []byte("three"), make([]byte, 7)))
	check(f.WriteDataPadded(3, false, nil, make([]byte, 7)))
	check(f.WriteData(5, true, nil))
	check(f.WritePing(true, [8]byte{}))
	check(f.WriteDataPadded(5, false, []byte("five"), make([]byte, 0)))
	check(f.WriteRSTStream(1, http2.ErrCodeCancel))
	check(f.WriteData(7, true, []byte("seven")))
	want := []string{"opens", "3 on 1: one", "13 on 3: three", "over 5", "5 on 5: five", "resets", "over 1", "5 on 7: seven", "over 7"}
	if n := wire.Len(); n > 300 {
		t.Fatal(n)
	}
	for size := 1; size <= wire.Len(); size++ {
		var got heard
		var follower frames
		for part := range slices.Chunk(wire.Bytes(), size) {
			follower.follow(part, &got)
		}
		if !slices.Equal(got.lines, want) {
			t.Fatalf("%d bytes at a time:\n%q, want\n%q", size, got.lines, want)
		}
	}
}

// FuzzFrames: no bytes make a follower fail, and what it hands on is no more than what came.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(http2.ClientPreface+"\x00\x00\x03\x00\x08\x00\x00\x00\x01\x09ab"), 5)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		var got counted
		var follower frames
		for part := range slices.Chunk(b, max(size, 1)) {
			follower.follow(part, &got)
		}
		if int(got) > len(b) {
			t.Errorf("%d bytes of %d", got, len(b))
		}
	})
}

type counted int

func (c *counted) piece(_ uint32, _ int, b []byte) { *c += counted(len(b)) }
func (c *counted) over(uint32)                     {}
func (c *counted) opens()                          {}
func (c *counted) resets()                         {}

// TestAPardonedReadIsShort: a connection that has to wait reads no more after a pardon than keepalive needs, once.
func TestAPardonedReadIsShort(t *testing.T) {
	r := newReading(64<<20, nil, nobody{})
	f := &flow{}
	f.init(nil, r)
	f.holder.used, f.holder.waits, f.holder.pardon = r.inflight.bound, true, true
	if may, _ := f.mayRead(); !may || f.atMost(readBuffer) != pardonBytes {
		t.Errorf("it may read: %v, at most %d bytes", may, f.atMost(readBuffer))
	}
	f.arrived(nil)
	if n := f.atMost(readBuffer); n != readBuffer {
		t.Errorf("the read after that has at most %d bytes", n)
	}
}

// BenchmarkArrived is what an ACK costs that arrives whole: no lock and no allocation.
func BenchmarkArrived(b *testing.B) {
	var wire bytes.Buffer
	ack := append([]byte{0, 0, 0, 0, 150}, make([]byte, 150)...)
	if err := http2.NewFramer(&wire, nil).WriteData(1, false, ack); err != nil {
		b.Fatal(err)
	}
	f := &flow{}
	f.init(nil, newReading(64<<20, nil, nobody{}))
	f.arrived([]byte(http2.ClientPreface))
	b.ReportAllocs()
	for b.Loop() {
		f.arrived(wire.Bytes())
		f.takenIn(1, len(ack))
	}
	if f.reading.used() != 0 {
		b.Error("it counts")
	}
}
