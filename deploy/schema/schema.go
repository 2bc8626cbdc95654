// Package schema owns the JSON Schema of the configuration file, for editors and for
// whoever writes configurations with a program. It is made from internal/config, where a
// test says so when it is out of date; nothing here is written by hand.
//
// It never decides what is valid: xds-relay validate knows more, such as which keys go
// together, and whether files can be read.
package schema

import _ "embed"

// JSON is the schema, draft 2020-12.
//
//go:embed xds-relay.schema.json
var JSON []byte
