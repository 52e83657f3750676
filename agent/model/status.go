package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Bounds of the text that an endpoint can put into an error.
const (
	maxErrorBody = 64 << 10
	maxErrorText = 500
)

// statusError returns the error of a response whose status is not good.
func statusError(res *http.Response) *Error {
	e := &Error{Kind: statusKind(res.StatusCode), Status: res.StatusCode, RetryAfter: retryAfter(res.Header)}
	if location, err := res.Location(); err == nil && res.StatusCode/100 == 3 {
		e.Err = errors.New("redirects to " + location.Scheme + "://" + location.Host +
			", which is not followed: give the final address as base URL")
		return e
	}
	// A body that breaks off still says something, so the error is not needed.
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	text, code := errorText(body)
	if code == "insufficient_quota" {
		// NB: sent with 429, but no pause brings credit.
		e.Kind = KindRefused
	}
	if text != "" {
		e.Err = errors.New(text)
	} else {
		e.Err = errors.New("the endpoint gave no reason")
	}
	return e
}

func statusKind(status int) ErrorKind {
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusConflict,
		status == http.StatusTooEarly, status == http.StatusTooManyRequests, status >= 500:
		return KindTransient
	default:
		return KindRefused
	}
}

// retryAfter returns how long a response asks to wait, or 0.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return clampWait(ms / 1000)
	}
	value := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(value, 64); err == nil && s > 0 {
		return clampWait(s)
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// clampWait keeps a number of seconds within what a Duration can hold.
func clampWait(seconds float64) time.Duration {
	const most = 365 * 24 * 60 * 60
	return time.Duration(min(seconds, most) * float64(time.Second))
}

// errorText returns the message and the code of an error's body, in any of the
// shapes that endpoints use. Of a web page it returns nothing.
func errorText(body []byte) (text, code string) {
	var shape struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  string          `json:"detail"`
	}
	if json.Unmarshal(body, &shape) != nil && shape.Error == nil {
		if body = bytes.TrimSpace(body); bytes.HasPrefix(body, []byte("<")) {
			return "", ""
		}
		return string(body), ""
	}
	var inner struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    any    `json:"code"`
	}
	_ = json.Unmarshal(shape.Error, &inner)
	switch c := inner.Code.(type) {
	case string:
		code = c
	case float64:
		code = strconv.Itoa(int(c))
	}
	if code == "" {
		code = inner.Type
	}
	for _, s := range []string{inner.Message, shape.Message, shape.Detail, string(shape.Error)} {
		if s != "" && s != "null" {
			return s, code
		}
	}
	return "", code
}

// oneLine returns text as one line that does not drive a terminal.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }), " ")
}

// clip returns the beginning of a text that is too long for an error.
func clip(s string) string {
	if len(s) <= maxErrorText {
		return s
	}
	return strings.ToValidUTF8(s[:maxErrorText], "") + "…"
}
