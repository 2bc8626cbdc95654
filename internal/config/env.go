package config

import (
	"fmt"
	"os"
	"strings"
)

// expandEnv replaces ${env:NAME} and ${env:NAME:-default} in the text of one
// string scalar, and $$ by $. It runs after parsing, so that the content of a
// variable can never become a key, a list or another line of YAML, and its
// result is not expanded again. As in a shell, the default also replaces a
// variable that is set but empty.
//
// used names the variables, for messages; it is empty when there were none. A
// $ that starts neither $$ nor ${ stands for itself.
func expandEnv(s string) (out string, used []string, err *Error) {
	if !strings.Contains(s, "$") {
		return s, nil, nil
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			b.WriteString(s)
			return b.String(), used, nil
		}
		b.WriteString(s[:i])
		s = s[i:]
		switch s[1] {
		case '$':
			b.WriteByte('$')
			s = s[2:]
		case '{':
			end := strings.IndexByte(s, '}')
			if end < 0 {
				return "", nil, &Error{
					Msg:  fmt.Sprintf("%q has no closing brace", clip(s)),
					Hint: `write ${env:NAME} or ${env:NAME:-default}; a literal $ is written $$`,
				}
			}
			name, value, err := lookupEnv(s[2:end])
			if err != nil {
				return "", nil, err
			}
			b.WriteString(value)
			used = append(used, name)
			s = s[end+1:]
		default:
			b.WriteByte('$')
			s = s[1:]
		}
	}
}

// unsetVariable begins what is said of a variable that is not set.
const unsetVariable = "environment variable "

// lookupEnv resolves what stands between the braces.
func lookupEnv(ref string) (name, value string, err *Error) {
	expr, isEnv := strings.CutPrefix(ref, "env:")
	name, fallback, hasDefault := strings.Cut(expr, ":-")
	if !isEnv || !isEnvName(name) {
		return "", "", &Error{
			Msg:  fmt.Sprintf("unknown reference %q", "${"+clip(ref)+"}"),
			Hint: `write ${env:NAME} or ${env:NAME:-default}; a literal $ is written $$`,
		}
	}
	value, set := os.LookupEnv(name)
	switch {
	case value == "" && hasDefault:
		return name, fallback, nil
	case !set:
		return "", "", &Error{
			Msg:  unsetVariable + name + " is not set",
			Hint: fmt.Sprintf("set it, or give a default: ${env:%s:-default}", name),
		}
	}
	return name, value, nil
}

func isEnvName(s string) bool {
	for i, r := range s {
		letter := r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}
