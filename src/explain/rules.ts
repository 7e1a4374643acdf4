/**
 * A row of a table that turns facts into sentences. Every row whose `when` is true says its sentence, in the
 * order of the table. The first of them with `next` names the command that helps.
 */
export interface Rule<Facts> {
  readonly when: (facts: Facts) => boolean;
  readonly says?: (facts: Facts) => string;
  readonly next?: (facts: Facts) => string;
}

export interface Verdict {
  readonly sentences: readonly string[];
  /** The command that helps; null: nothing to do. */
  readonly next: string | null;
}

/** Applies a table to facts. */
export function applyRules<Facts>(rules: readonly Rule<Facts>[], facts: Facts): Verdict {
  const matching = rules.filter(({ when }) => when(facts));
  return {
    sentences: matching.flatMap(({ says }) => (says === undefined ? [] : [says(facts)])),
    next: matching.find(({ next }) => next !== undefined)?.next?.(facts) ?? null,
  };
}
