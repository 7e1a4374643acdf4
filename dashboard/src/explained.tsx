import { useEffect } from 'preact/hooks';
import { FAILED_LATELY, type FailedCalls } from '../../src/explain/failures.ts';
import { applyRules, type Rule } from '../../src/explain/rules.ts';
import { call } from './api.ts';
import { sample, useLoaded } from './live.ts';
import { Panel } from './parts.tsx';

const NONE: FailedCalls = { calls: [], hasMore: false };

/** The state of something in sentences, and the command that helps, as `rookery explain` prints them. */
export function Explained<Facts>({ rules, facts }: { readonly rules: readonly Rule<Facts>[]; readonly facts: Facts }) {
  const { sentences, next } = applyRules(rules, facts);
  if (sentences.length === 0 && next === null) return null;
  return (
    <Panel title="In words">
      {sentences.map(text => (
        <p key={text}>{text}</p>
      ))}
      {next === null ? null : (
        <p>
          What helps: <code>{next}</code>
        </p>
      )}
    </Panel>
  );
}

/**
 * Returns the calls that failed lately, read again with each new point of the metrics. They only add to an
 * explanation, so there are none while they cannot be read.
 */
export function useFailedCalls(of: { readonly agent?: string; readonly function?: string }): FailedCalls {
  const { value, reload } = useLoaded(`failed calls ${JSON.stringify(of)}`, async signal => {
    const { calls, next_cursor: cursor } = await call('listCalls', { query: { ...of, ...FAILED_LATELY }, signal });
    return { calls, hasMore: cursor !== null };
  });
  const at = sample.value?.at ?? null;
  useEffect(() => {
    if (at !== null) reload();
  }, [at]);
  return value ?? NONE;
}
