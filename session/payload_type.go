package session

// Type implements [Payload].
func (*EndSeed) Type() Type { return TypeEndSeed }

// Type implements [Payload].
func (*SandboxSwitch) Type() Type { return TypeSandboxMode }

// Type implements [Payload].
func (*ApprovalSwitch) Type() Type { return TypeApprovalPolicy }

// Type implements [Payload].
func (*PresetSwitch) Type() Type { return TypePreset }

// Type implements [Payload].
func (*Release) Type() Type { return TypeRelease }

// Type implements [Payload].
func (*FormatRaised) Type() Type { return TypeFormat }

// Type implements [Payload].
func (*Descriptor) Type() Type { return TypeDescriptor }

// Type implements [Payload].
func (*ModelSelected) Type() Type { return TypeModelSelected }

// Type implements [Payload].
func (*UserMessage) Type() Type { return TypeUserMessage }

// Type implements [Payload].
func (*Consumed) Type() Type { return TypeConsumed }

// Type implements [Payload].
func (*Claim) Type() Type { return TypeClaim }

// Type implements [Payload].
func (*TurnStart) Type() Type { return TypeTurnStart }

// Type implements [Payload].
func (*TurnEnd) Type() Type { return TypeTurnEnd }

// Type implements [Payload].
func (*TurnPark) Type() Type { return TypeTurnPark }

// Type implements [Payload].
func (*TurnWake) Type() Type { return TypeTurnWake }

// Type implements [Payload].
func (*TurnDeferred) Type() Type { return TypeTurnDeferred }

// Type implements [Payload].
func (*StepStart) Type() Type { return TypeStepStart }

// Type implements [Payload].
func (*StepEnd) Type() Type { return TypeStepEnd }

// Type implements [Payload].
func (*RequestHeader) Type() Type { return TypeRequestHeader }

// Type implements [Payload].
func (*AssistantMessage) Type() Type { return TypeAssistantMessage }

// Type implements [Payload].
func (*ToolCall) Type() Type { return TypeToolCall }

// Type implements [Payload].
func (*ToolDecision) Type() Type { return TypeToolDecision }

// Type implements [Payload].
func (*ToolResult) Type() Type { return TypeToolResult }

// Type implements [Payload].
func (*ApprovalAsked) Type() Type { return TypeApprovalAsked }

// Type implements [Payload].
func (*ApprovalDecided) Type() Type { return TypeApprovalDecided }

// Type implements [Payload].
func (*Interrupt) Type() Type { return TypeInterrupt }

// Type implements [Payload].
func (*Cancel) Type() Type { return TypeCancel }

// Type implements [Payload].
func (*Nudge) Type() Type { return TypeNudge }

// Type implements [Payload].
func (*Expired) Type() Type { return TypeExpired }

// Type implements [Payload].
func (*Budget) Type() Type { return TypeBudget }

// Type implements [Payload].
func (*Closed) Type() Type { return TypeClosed }

// Type implements [Payload].
func (*Archived) Type() Type { return TypeArchived }

// Type implements [Payload].
func (*End) Type() Type { return TypeEnd }
