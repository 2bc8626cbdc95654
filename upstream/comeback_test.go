package upstream

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestComeback: which responses are news for groups that back off (ERR-1). Streams are
// letters: a message is a lower-case one, the end of a stream an upper-case one; a dot is a
// second, and a star behind a message says that it is news.
func TestComeback(t *testing.T) {
	for _, test := range []struct{ row, why string }{
		{"ab..a....b............a", "nobody has failed"},
		{"aBa", "a is being answered all along"},
		{"aB.........b", "nine seconds are not long"},
		{"aB..........a*", "the first answer for ten seconds"},
		{"aB.a.a.a.a.a.a.a.a.a.a.a", "a is answered all the time"},
		{"aAb*", "all streams had failed"},
		{"abAB.c*", "all streams had failed"},
		{"abA.b", "not all"},
		{"abAB.c*b", "it is news once"},
		{"abAB.c*C.b*", "they have failed again"},
		{"Aa*", "the very first"},
		{"abA..........b*...........b", "who failed has been told"},
		{"aAAAb*", "attempts that fail"},
	} {
		var b comeback
		now := time.Unix(0, 0)
		answered := make(map[rune]bool)
		var got strings.Builder
		for _, c := range test.row {
			switch {
			case c == '*':
				continue
			case c == '.':
				now = now.Add(time.Second)
			case slices.Contains([]rune("ABC"), c):
				b.ended(answered[c+'a'-'A'])
				delete(answered, c+'a'-'A')
			}
			got.WriteRune(c)
			if slices.Contains([]rune("abc"), c) {
				news := b.message(!answered[c], now)
				answered[c] = true
				if news {
					got.WriteByte('*')
				}
			}
		}
		if got.String() != test.row {
			t.Errorf("%s, want %s: %s", got.String(), test.row, test.why)
		}
	}
}

// TestGroupsAreToldOfAComeback: the groups that share an entry are told when it answers
// again, but not the one that it answers, nor one that has quit.
func TestGroupsAreToldOfAComeback(t *testing.T) {
	var f freezer
	p := serve(t, loopback(t), nil)
	c := reach(t, Endpoint{Target: "passthrough:///" + p.address, Dial: f.dial})
	told := make(chan string, 9)
	for _, group := range []string{"a", "b", "c"} {
		c.join(group, func() { told <- group })
	}
	s, ended := open(t, c, "a")
	until(t, "a stream", func() bool { return p.open() == 1 })
	p.say("1")
	until(t, "a message", func() bool { return wireOf(s.ClientStream).messages.Load() == 1 })
	c.quit("c")
	wireOf(s.ClientStream).Close()
	lost(t, ended)
	until(t, "no stream", func() bool { return p.open() == 0 })
	again, _ := open(t, c, "a")
	until(t, "another stream", func() bool { return p.open() == 1 })
	p.say("2")
	if who := wait(t, told); who != "b" {
		t.Errorf("%s was told", who)
	}
	p.say("3")
	until(t, "two messages", func() bool { return wireOf(again.ClientStream).messages.Load() == 2 })
	if len(told) > 0 {
		t.Errorf("%s was told, too", <-told)
	}
}
