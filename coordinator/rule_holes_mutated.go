//go:build mutate_holes

package coordinator

const seesHoles = false
