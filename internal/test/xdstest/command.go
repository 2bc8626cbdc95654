package xdstest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	rpccode "google.golang.org/genproto/googleapis/rpc/code"
)

// Command is what an actor says to the relay: the part of a ">" line behind the marker. The zero value of a field means not said.
type Command struct {
	Verb      string
	TypeURL   string
	Names     []string        // sub, req, empty-type
	Minus     []string        // -names: unsubscribed, or removed
	Resources []Resource      // resp
	Errors    []ResourceError // resp
	Init      []Resource      // sub
	Status    Status          // end; nack has only the message
	Variant   string          // open: "delta" or "sotw"
	Wait      time.Duration
	Options   map[string]string // the rest of the key=value words, unquoted
}

// ResourceError is !name=CODE"message".
type ResourceError struct {
	Name   string
	Status Status
}

func (e ResourceError) String() string { return "!" + quote(e.Name) + "=" + e.Status.join("") }

// V2 reports whether an open or fetch is one of the v2 transport.
func (c Command) V2() bool { return c.Options["transport"] == "v2" }

// grammar says which words a verb takes, in the order they stand in.
type grammar struct {
	typed   bool     // a type comes first
	words   string   // what the bare words are: "names", "±names", "resources", "status", "message", "variant", "duration", or none
	options []string // allowed keys
	node    bool     // so are the words of a node
}

var (
	upstreamVerbs = map[string]grammar{
		"resp":    {typed: true, words: "resources", options: []string{"nonce", "id", "version"}},
		"end":     {words: "status"},
		"garbage": {},
		"down":    {},
		"back":    {},
		"hang":    {},
		"wake":    {},
	}
	clientVerbs = map[string]grammar{
		"open":       {words: "variant", options: []string{"nonode", "header", "via", "from", "transport"}, node: true},
		"sub":        {typed: true, words: "±names", options: []string{"init", "nonce", "err", "loc"}, node: true},
		"req":        {typed: true, words: "names", options: []string{"nonce", "version", "err", "loc"}, node: true},
		"ack":        {typed: true, options: []string{"nonce"}, node: true},
		"nack":       {typed: true, words: "message", options: []string{"nonce"}, node: true},
		"fetch":      {typed: true, words: "names", options: []string{"version", "nonode", "from", "transport"}, node: true},
		"close":      {},
		"garbage":    {},
		"empty-type": {words: "names"},
	}
	clockVerbs = map[string]grammar{"wait": {words: "duration"}, "restart": {}, "rules": {}}

	upstreamActor = regexp.MustCompile(`^(b\.)?(up|aux|solo|trial|probe)[0-9]*$`)
	clientActor   = regexp.MustCompile(`^c[0-9]+$`)
)

func verbsOf(actor string) (map[string]grammar, error) {
	switch {
	case actor == "*":
		return clockVerbs, nil
	case upstreamActor.MatchString(actor):
		return upstreamVerbs, nil
	case clientActor.MatchString(actor):
		return clientVerbs, nil
	}
	return nil, fmt.Errorf("no actor is called %s: use up, aux, solo, probe, b.up, c1, c2, … or *", actor)
}

// MustParse is ParseCommand for tests that speak without a file.
func MustParse(actor, text string) Command {
	c, err := ParseCommand(actor, text)
	if err != nil {
		panic(err)
	}
	return c
}

// ParseCommand reads what an actor says.
func ParseCommand(actor, text string) (Command, error) {
	verbs, err := verbsOf(actor)
	if err != nil {
		return Command{}, err
	}
	words, err := tokens(text)
	if err != nil {
		return Command{}, err
	}
	if len(words) == 0 {
		return Command{}, fmt.Errorf("%s says nothing", actor)
	}
	g, ok := verbs[words[0]]
	if !ok {
		return Command{}, fmt.Errorf("%s cannot say %s", actor, words[0])
	}
	c := Command{Verb: words[0], Options: map[string]string{}}
	words = words[1:]
	if g.typed {
		if len(words) == 0 {
			return Command{}, fmt.Errorf("%s needs a type", c.Verb)
		}
		short, err := whole(words[0])
		if err != nil {
			return Command{}, err
		}
		c.TypeURL = TypeURL(short)
		words = words[1:]
	}
	for i, w := range words {
		if err := c.word(g, i, w); err != nil {
			return Command{}, fmt.Errorf("%s: %w", c.Verb, err)
		}
	}
	if c.Verb == "open" && c.Variant == "" || c.Verb == "wait" && c.Wait == 0 {
		return Command{}, fmt.Errorf("%s: say more: open delta, open sotw, wait 15s", c.Verb)
	}
	return c, nil
}

// word takes in the i-th word behind verb and type.
func (c *Command) word(g grammar, i int, w string) (err error) {
	if key, value, ok := strings.Cut(w, "="); (ok || key == "nonode") && slices.Contains(g.options, key) || ok && g.node && isNodeWord(key) {
		if key == "init" {
			return c.init(value)
		}
		if key != "loc" && key != "features" && key != "header" && key != "via" { // lists keep their quotes until they are split
			value, err = whole(value)
		}
		c.Options[key] = value
		return err
	}
	switch {
	case g.words == "resources":
		return c.resource(w)
	case g.words == "±names" && w[0] == '-':
		return appendWord(&c.Minus, w[1:])
	case g.words == "±names" || g.words == "names":
		if w[0] != '"' && strings.ContainsAny(w, "=@") {
			return fmt.Errorf("%s is neither an option nor a name; quote it if it is a name", w)
		}
		return appendWord(&c.Names, w)
	case g.words == "status" && i == 0:
		c.Status.Code, err = parseCode(w)
		return err
	case g.words == "status" && i == 1 && w[0] == '"', g.words == "message" && i == 0 && w[0] == '"':
		c.Status.Message, err = whole(w)
		return err
	case g.words == "variant" && i == 0 && (w == "delta" || w == "sotw"):
		c.Variant = w
		return nil
	case g.words == "variant" && i == 1:
		c.TypeURL = TypeURL(w)
		return nil
	case g.words == "duration" && i == 0:
		c.Wait, err = time.ParseDuration(w)
		return err
	}
	return fmt.Errorf("unexpected %s", w)
}

func (c *Command) resource(w string) error {
	switch w[0] {
	case '-':
		return appendWord(&c.Minus, w[1:])
	case '!':
		e := ResourceError{}
		name, rest, _, err := word(w[1:], "=")
		if err != nil || rest == "" {
			return fmt.Errorf("%s is not !name=CODE\"message\"", w)
		}
		var code string
		if code, rest, _, err = word(rest[1:], `"`); err != nil {
			return err
		}
		e.Name = name
		if e.Status.Code, err = parseCode(code); err == nil && rest != "" {
			e.Status.Message, err = whole(rest)
		}
		c.Errors = append(c.Errors, e)
		return err
	}
	r, err := ParseResource(strings.TrimPrefix(w, "+"))
	c.Resources = append(c.Resources, r)
	return err
}

func (c *Command) init(list string) error {
	parts, err := split(list, ",")
	for _, part := range parts {
		var r Resource
		if r, err = ParseResource(part); err != nil {
			return err
		}
		c.Init = append(c.Init, r)
	}
	return err
}

func appendWord(list *[]string, w string) error {
	if w == "" {
		return fmt.Errorf("a name is missing; write the empty name as \"\"")
	}
	name, err := whole(w)
	*list = append(*list, name)
	return err
}

// failure is the error_detail of a request: a NACK's, or err="message".
func (c Command) failure() (Status, bool) {
	if c.Verb == "nack" {
		return Status{rpccode.Code_INVALID_ARGUMENT, c.Status.Message}, true
	}
	message, ok := c.Options["err"]
	return Status{rpccode.Code_INVALID_ARGUMENT, message}, ok
}
