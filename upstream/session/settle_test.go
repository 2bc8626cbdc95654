package session

import (
	"testing"
	"time"
)

// TestEarlyAfter: how soon a set that came in one response is sent depends on what is known of the server and how large
// the response is.
func TestEarlyAfter(t *testing.T) {
	const settle = 100 * time.Millisecond
	for _, c := range []struct {
		as    Habit
		size  int
		after time.Duration
		ok    bool
	}{
		{HabitUnknown, 64<<10 - 1, 20 * time.Millisecond, true},
		{HabitUnknown, 64 << 10, 20 * time.Millisecond, false},
		{HabitWhole, 1 << 20, 10 * time.Millisecond, true},
		{HabitWhole, 1<<20 + 1, 10 * time.Millisecond, false},
		{HabitSplit, 1, 0, false},
	} {
		if after, ok := earlyAfter(c.as, c.size, settle); after != c.after || ok != c.ok {
			t.Errorf("%q, %d bytes: %v %v, want %v %v", c.as, c.size, after, ok, c.after, c.ok)
		}
	}
}

// TestHabits: a server that has ever split a set counts as one that does, also after a restart.
func TestHabits(t *testing.T) {
	a := NewAnswers()
	a.sends("one", HabitWhole)
	a.sends("two", HabitWhole)
	a.sends("two", HabitSplit)
	a.sends("two", HabitWhole)
	next := NewAnswers()
	next.Recall(a.Habits())
	next.Recall(map[string]string{"three": "in its own way"})
	for entry, want := range map[string]Habit{"one": HabitWhole, "two": HabitSplit, "three": HabitUnknown} {
		if as := next.habit(entry); as != want {
			t.Errorf("%s: %q, want %q", entry, as, want)
		}
	}
	if none := (*Answers)(nil); none.habit("one") != HabitSplit {
		t.Error("where nothing is learnt a set is not waited for")
	}
}
