package upstream

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestConnections: which connection takes a stream, as a conversation. "take" says the
// number of the connection, counted from 1 in the order in which they are opened, and retire
// is said of one; the other commands name a stream by the group that has it.
func TestConnections(t *testing.T) {
	for _, test := range []struct {
		name          string
		most, streams int
		script        string
	}{
		{"one connection is filled, except for the check", 3, 4, `
			take a: 1
			take b: 1
			take c: 1
			take d: 2`},
		{"a place that is given back is taken first", 3, 3, `
			take a: 1
			take b: 1
			take c: 2
			leave a:
			take d: 1
			take e: 2
			take f: 3`},
		{"a group's streams share a connection while there is room", 3, 4, `
			take a: 1
			take b: 1
			take c: 1
			take d: 2
			leave a:
			take d: 2
			take c: 1
			take c: 2`},
		{"there are no more than may be", 2, 2, `
			take a: 1
			take b: 2
			take c: none
			leave a:
			take c: 1`},
		{"two streams are the least there can be, and one of them is for use", 1, 1, `
			take a: 1
			take b: none`},
		{"what is retired takes nothing, and is closed when it is empty", 1, 9, `
			take a: 1
			take b: 1
			retire 1:
			take c: 2
			leave a:
			leave b: close 1
			leave c:
			retire 2: close 2`},
		{"a stream that could not begin teaches the limit, for all connections", 9, 9, `
			take a: 1
			take b: 1
			take c: 1
			take d: 1
			begin a:
			begin b:
			begin c:
			stuck d: move d c, learnt 3
			leave d:
			leave c:
			take d: 2
			take c: 2
			take e: 3`},
		{"attempts go before streams, the latest first", 9, 6, `
			take a: 1
			take b: 1
			take c: 1
			take d: 1
			take e: 1
			begin a:
			begin c:
			begin d:
			stuck b: move e b d, learnt 3`},
		{"also on connections that have not been tried", 9, 4, `
			take a: 1
			take b: 1
			take c: 1
			take d: 2
			take e: 2
			take f: 2
			begin a:
			begin b:
			stuck c: move c b f e, learnt 2
			leave e:
			leave f:
			leave b:
			leave c:
			take b: 3
			take c: 4`},
		{"what is on its way out is not sent away twice", 9, 9, `
			take a: 1
			take b: 1
			take c: 1
			take d: 1
			begin a:
			begin b:
			stuck c: move d c b, learnt 2
			stuck d: move, learnt 2`},
		{"a server that takes one stream gets one, without room for the check", 9, 9, `
			take a: 1
			take b: 1
			begin a:
			stuck b: move b, learnt 1
			leave b:
			take b: 2`},
		{"a connection that takes no stream at all is left, and teaches nothing", 9, 9, `
			take a: 1
			take b: 1
			stuck a: move b a, learnt 0
			leave a:
			take a: 2
			leave b: close 1
			take b: 2`},
		{"what was learned goes with the last connection", 9, 9, `
			take a: 1
			take b: 1
			begin a:
			stuck b: move b, learnt 1
			retire 1:
			leave b:
			leave a: close 1
			take a: 2
			take b: 2`},
		{"what was learned stays while there is one", 9, 9, `
			take a: 1
			take b: 1
			begin a:
			stuck b: move b, learnt 1
			leave b:
			take b: 2
			retire 1:
			leave a: close 1
			take a: 3`},
	} {
		t.Run(test.name, func(t *testing.T) {
			cs := connections{most: test.most, streams: test.streams}
			seats := make(map[string][]*seat)
			var opened []*connection
			closed := func(over bool, c *connection) string {
				if !over {
					return ""
				}
				return fmt.Sprintf(" close %d", slices.Index(opened, c)+1)
			}
			for line := range strings.Lines(strings.TrimSpace(test.script)) {
				line = strings.TrimSpace(line)
				said, _, _ := strings.Cut(line, ":")
				what, group, _ := strings.Cut(said, " ")
				got := said + ":"
				var s *seat
				if of := seats[group]; len(of) > 0 {
					s = of[len(of)-1]
				}
				switch what {
				case "take":
					if s = cs.take(group); s == nil {
						got += " none"
						break
					}
					seats[group] = append(seats[group], s)
					if !slices.Contains(opened, s.on) {
						opened = append(opened, s.on)
					}
					got += fmt.Sprintf(" %d", slices.Index(opened, s.on)+1)
				case "begin":
					s.begun = true
				case "stuck":
					got += " move"
					for _, m := range cs.stuck(s.on) {
						got += fmt.Sprintf(" %v", m.group)
					}
					got += fmt.Sprintf(", learnt %d", cs.learnt)
				case "leave":
					seats[group] = seats[group][:len(seats[group])-1]
					got += closed(cs.leave(s), s.on)
				case "retire":
					n, _ := strconv.Atoi(group)
					got += closed(cs.retire(opened[n-1]), opened[n-1])
				}
				if got != line {
					t.Fatalf("got  %q\nwant %q", got, line)
				}
			}
		})
	}
}
