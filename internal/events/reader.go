package events

import (
	"container/list"
	"context"
	"slices"
	"time"
)

// Page is some of a Ring's events, the oldest first.
type Page struct {
	Events []Event
	// Last is the ID up to which they were looked at, from which on to ask for others, and More says that there
	// are some.
	Last uint64
	More bool
	// Lost: events after the one from which on was asked had to go.
	Lost bool
}

// List returns at most so many events of some kinds after an ID; 0: the latest. No kinds are all.
func (r *Ring) List(after uint64, kinds []Kind, most int) (p Page) {
	if r == nil {
		return Page{Last: after}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ripen(r.now())
	p.Last = r.last
	fits := func(e *entry) bool { return len(kinds) == 0 || slices.Contains(kinds, e.Kind) }
	if after == 0 {
		for at := r.all.Back(); at != nil && len(p.Events) < most; at = at.Prev() {
			if e := at.Value.(*entry); fits(e) {
				p.Events = append(p.Events, e.Event)
			}
		}
		slices.Reverse(p.Events)
		return p
	}
	p.Lost = after < r.gone
	for at := r.after(after); at != nil; at = at.Next() {
		e := at.Value.(*entry)
		if !fits(e) {
			continue
		}
		if len(p.Events) == most {
			p.Last, p.More = p.Events[most-1].ID, true
			break
		}
		p.Events = append(p.Events, e.Event)
	}
	return p
}

// after is the first event after an ID.
func (r *Ring) after(id uint64) (first *list.Element) {
	for at := r.all.Back(); at != nil && at.Value.(*entry).ID > id; at = at.Prev() {
		first = at
	}
	return first
}

// Reader reads the events of a Ring as they come. One goroutine uses it.
type Reader struct {
	ring *Ring
	wake chan struct{} // one slot

	// Guarded by the Ring's mutex.
	at   uint64 // the last ID that was read
	lost int    // events after it that had to go
}

// Read returns a Reader of the events after an ID; 0: of all that are there, and those to come. Close it in the end.
func (r *Ring) Read(after uint64) *Reader {
	reader := &Reader{ring: r, wake: make(chan struct{}, 1), at: after}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers[reader] = struct{}{}
	return reader
}

// Latest is the ID of the last event.
func (r *Ring) Latest() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Close ends it.
func (d *Reader) Close() {
	d.ring.mu.Lock()
	defer d.ring.mu.Unlock()
	delete(d.ring.readers, d)
}

// Next waits for events, and returns at most so many, and how many had to go that were not read. It
// returns nothing when a time is over, or the context.
func (d *Reader) Next(ctx context.Context, most int, within time.Duration) (events []Event, lost int) {
	end := time.NewTimer(within)
	defer end.Stop()
	for {
		var due time.Duration
		if events, lost, due = d.take(most); len(events)+lost > 0 {
			return events, lost
		}
		var ripe <-chan time.Time
		if due > 0 {
			ripe = time.After(due)
		}
		select {
		case <-d.wake:
		case <-ripe:
		case <-end.C:
			return nil, 0
		case <-ctx.Done():
			return nil, 0
		}
	}
}

// take returns what there is, and when a repeat is due; 0: none is.
func (d *Reader) take(most int) (events []Event, lost int, due time.Duration) {
	r := d.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.ripen(now)
	for at := r.after(d.at); at != nil && len(events) < most; at = at.Next() {
		e := at.Value.(*entry)
		events = append(events, e.Event)
		d.at = e.ID
	}
	lost, d.lost = d.lost, 0
	if len(r.waiting) > 0 {
		due = max(r.again-now.Sub(r.waiting[0].since), time.Millisecond)
	}
	return events, lost, due
}
