package csds

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// The bounds of a request, besides its size: how many matchers it may have, and how many of the same kind each of
// these; how long a regular expression may be; and how deep matchers of values may be in each other.
const (
	maxMatchers = 16
	maxRegex    = 1 << 10
	maxDepth    = 8
)

// test is a matcher that is ready for use: one for strings, for values or for nodes.
type test[T any] func(T) bool

// nodes makes the matchers of a request ready: a node has to satisfy one of them.
func nodes(matchers []*matcher.NodeMatcher) (test[*core.Node], error) {
	if len(matchers) > maxMatchers {
		return nil, fmt.Errorf("there are %d node_matchers, and %d are allowed; ask more than once, or use safe_regex", len(matchers), maxMatchers)
	}
	var any []test[*core.Node]
	for i, m := range matchers {
		one, err := node(m)
		if err != nil {
			return nil, fmt.Errorf("node_matchers[%d].%w", i, err)
		}
		any = append(any, one)
	}
	return func(n *core.Node) bool {
		return slices.ContainsFunc(any, func(one test[*core.Node]) bool { return one(n) })
	}, nil
}

// node makes one matcher ready: the id and all of the metadata have to match. An empty one matches every node.
func node(m *matcher.NodeMatcher) (test[*core.Node], error) {
	if len(m.GetNodeMetadatas()) > maxMatchers {
		return nil, fmt.Errorf("node_metadatas: there are %d, and %d are allowed", len(m.GetNodeMetadatas()), maxMatchers)
	}
	id := func(string) bool { return true }
	if m.GetNodeId() != nil {
		var err error
		if id, err = stringMatcher(m.GetNodeId()); err != nil {
			return nil, fmt.Errorf("node_id.%w", err)
		}
	}
	var all []test[*structpb.Struct]
	for i, s := range m.GetNodeMetadatas() {
		one, err := metadata(s)
		if err != nil {
			return nil, fmt.Errorf("node_metadatas[%d].%w", i, err)
		}
		all = append(all, one)
	}
	return func(n *core.Node) bool {
		return id(n.GetId()) && !slices.ContainsFunc(all, func(one test[*structpb.Struct]) bool { return !one(n.GetMetadata()) })
	}, nil
}

// metadata makes a matcher of the value at a path ready.
func metadata(m *matcher.StructMatcher) (test[*structpb.Struct], error) {
	var path []string
	for _, segment := range m.GetPath() {
		path = append(path, segment.GetKey())
	}
	if len(path) == 0 || len(path) > maxMatchers {
		return nil, fmt.Errorf("path: it has %d segments; use 1 to %d, each with a key", len(path), maxMatchers)
	}
	is, err := value(m.GetValue(), maxDepth)
	if err != nil {
		return nil, fmt.Errorf("value.%w", err)
	}
	return func(s *structpb.Struct) bool {
		v := structpb.NewStructValue(s)
		for _, key := range path {
			v = v.GetStructValue().GetFields()[key]
		}
		return is(v)
	}, nil
}

// value makes a matcher of a value ready; nil stands for one that is not there. As in Envoy it is present if it is
// no list and no struct.
func value(m *matcher.ValueMatcher, depth int) (test[*structpb.Value], error) {
	if depth == 0 {
		return nil, fmt.Errorf("or_match: more than %d are in each other", maxDepth)
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcher.ValueMatcher_NullMatch_:
		return is[*structpb.Value_NullValue](func(*structpb.Value_NullValue) bool { return true }), nil
	case *matcher.ValueMatcher_DoubleMatch:
		return is(func(v *structpb.Value_NumberValue) bool { return within(p.DoubleMatch, v.NumberValue) }), nil
	case *matcher.ValueMatcher_BoolMatch:
		return is(func(v *structpb.Value_BoolValue) bool { return v.BoolValue == p.BoolMatch }), nil
	case *matcher.ValueMatcher_PresentMatch:
		return func(v *structpb.Value) bool { return present(v) == p.PresentMatch }, nil
	case *matcher.ValueMatcher_StringMatch:
		t, err := stringMatcher(p.StringMatch)
		if err != nil {
			return nil, fmt.Errorf("string_match.%w", err)
		}
		return is(func(v *structpb.Value_StringValue) bool { return t(v.StringValue) }), nil
	case *matcher.ValueMatcher_ListMatch:
		one, err := value(p.ListMatch.GetOneOf(), depth-1)
		if err != nil {
			return nil, fmt.Errorf("list_match.one_of.%w", err)
		}
		return is(func(v *structpb.Value_ListValue) bool { return slices.ContainsFunc(v.ListValue.GetValues(), one) }), nil
	case *matcher.ValueMatcher_OrMatch:
		return either(p.OrMatch.GetValueMatchers(), depth-1)
	}
	return nil, errors.New("match_pattern: none is set; use string_match, double_match, bool_match, null_match, present_match, list_match or or_match")
}

func either(matchers []*matcher.ValueMatcher, depth int) (test[*structpb.Value], error) {
	if len(matchers) > maxMatchers {
		return nil, fmt.Errorf("or_match: there are %d, and %d are allowed", len(matchers), maxMatchers)
	}
	var any []test[*structpb.Value]
	for _, m := range matchers {
		one, err := value(m, depth)
		if err != nil {
			return nil, fmt.Errorf("or_match.%w", err)
		}
		any = append(any, one)
	}
	return func(v *structpb.Value) bool {
		return slices.ContainsFunc(any, func(one test[*structpb.Value]) bool { return one(v) })
	}, nil
}

// is is a test of values of one kind.
func is[K any](such func(K) bool) test[*structpb.Value] {
	return func(v *structpb.Value) bool {
		k, ok := v.GetKind().(K)
		return ok && such(k)
	}
}

func present(v *structpb.Value) bool {
	switch v.GetKind().(type) {
	case nil, *structpb.Value_StructValue, *structpb.Value_ListValue:
		return false
	}
	return true
}

func within(m *matcher.DoubleMatcher, n float64) bool {
	if r := m.GetRange(); r != nil {
		return r.GetStart() <= n && n < r.GetEnd()
	}
	return n == m.GetExact()
}

// stringMatcher makes a matcher of strings ready.
func stringMatcher(m *matcher.StringMatcher) (test[string], error) {
	fold := func(s string) string { return s }
	if m.GetIgnoreCase() {
		fold = strings.ToLower
	}
	with := func(such func(s, part string) bool, part string) (test[string], error) {
		part = fold(part)
		return func(s string) bool { return such(fold(s), part) }, nil
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcher.StringMatcher_Exact:
		return with(func(s, part string) bool { return s == part }, p.Exact)
	case *matcher.StringMatcher_Prefix:
		return with(strings.HasPrefix, p.Prefix)
	case *matcher.StringMatcher_Suffix:
		return with(strings.HasSuffix, p.Suffix)
	case *matcher.StringMatcher_Contains:
		return with(strings.Contains, p.Contains)
	case *matcher.StringMatcher_SafeRegex:
		return expression(p.SafeRegex.GetRegex())
	case *matcher.StringMatcher_Custom:
		return nil, errors.New("custom: extensions are not known here; use exact, prefix, suffix, contains or safe_regex")
	}
	return nil, errors.New("match_pattern: none is set; use exact, prefix, suffix, contains or safe_regex")
}

// expression makes a regular expression ready, which the whole string has to match. Go's take linear time, as RE2's.
func expression(regex string) (test[string], error) {
	if regex == "" || len(regex) > maxRegex {
		return nil, fmt.Errorf("safe_regex.regex: it has %d bytes; use 1 to %d", len(regex), maxRegex)
	}
	if _, err := regexp.Compile(regex); err != nil {
		return nil, fmt.Errorf("safe_regex.regex: it is no regular expression of RE2: %w", err)
	}
	r, err := regexp.Compile(`\A(?:` + regex + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("safe_regex.regex: it is no regular expression of RE2: %w", err)
	}
	return r.MatchString, nil
}
