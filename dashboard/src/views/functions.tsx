import { useState } from 'preact/hooks';
import { type AnswerOf, call, may } from '../api.ts';
import { allPages } from '../list.ts';
import { useLoaded } from '../live.ts';
import { ago, Failure, Input, Loading, Note, Shown, Table, Title } from '../parts.tsx';
import { usageColumns, useUsage } from '../usage.ts';

/** A version of a function, with the fields that the page shows. */
export type FunctionVersion = Extract<AnswerOf<'listFunctions'>, { result: unknown }>['result']['functions'][number];

/** Reads the latest versions of all functions. */
export const readFunctions = (signal: AbortSignal) =>
  allPages<FunctionVersion>(
    fn => fn.functionVersionUrn,
    async (pageIndex, pageSize) => {
      const answer = await call('listFunctions', {
        query: { versionNumber: '$latest', pageIndex, pageSize },
        signal,
      });
      return (answer as Extract<typeof answer, { result: unknown }>).result.functions;
    },
  );

export function FunctionsView() {
  const [text, setText] = useState('');
  const { value, error } = useLoaded('functions', readFunctions);
  const usage = useUsage('functions');
  const rows = (value ?? []).filter(fn =>
    `${fn.name} ${fn.runtime} ${fn.kind}`.toLowerCase().includes(text.toLowerCase()),
  );
  return (
    <>
      <Title text="Functions">
        {may('write') ? (
          <a class="button main" href="#/functions/new">
            New function
          </a>
        ) : null}
      </Title>
      <div class="filters">
        <Input label="Search" value={text} onInput={setText} type="search" />
        <Shown rows={rows} of={value} />
      </div>
      <Failure text={error} />
      <Failure text={usage.error} />
      {value === undefined ? (
        <Loading unless={error} />
      ) : (
        <Table
          label="Functions"
          rows={rows}
          keyOf={fn => fn.functionVersionUrn}
          empty={
            value.length === 0
              ? 'There is no function yet. Choose “New function”, or run “rookery function register”.'
              : 'No matching functions.'
          }
          columns={[
            { title: 'Name', cell: fn => <a href={`#/functions/${encodeURIComponent(fn.name)}`}>{fn.name}</a> },
            { title: 'Kind', cell: fn => fn.kind },
            { title: 'Runtime', cell: fn => fn.runtime },
            { title: 'Handler', cell: fn => fn.handler, isMono: true, isWide: true },
            ...usageColumns<FunctionVersion>(
              fn => usage.value?.[fn.name],
              (fn, { instances = 0 }) => ({ cpuMillis: instances * fn.cpu, memoryMb: instances * fn.memory }),
            ),
            {
              title: 'Instances',
              cell: fn => `${usage.value?.[fn.name]?.instances ?? 0} (${fn.minInstance} to ${fn.maxInstance})`,
              isNumber: true,
            },
            {
              title: 'Changed',
              cell: fn => `${ago(fn.updateTime || fn.createTime)} ago`,
              isNumber: true,
              isWide: true,
            },
          ]}
        />
      )}
      <Note>The list is read when the page opens. Reload the page to see functions registered since.</Note>
    </>
  );
}
