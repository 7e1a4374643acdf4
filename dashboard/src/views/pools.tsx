import { useState } from 'preact/hooks';
import { type AnswerOf, call, may } from '../api.ts';
import { allPages } from '../list.ts';
import { useLoaded } from '../live.ts';
import { Action, Failure, Input, Loading, Note, Shown, Status, Table, Title } from '../parts.tsx';

type Pool = Extract<AnswerOf<'listPools'>, { result: unknown }>['result']['pools'][number];

const STATES = ['new', 'creating', 'update requested', 'updating', 'running', 'failed', 'deleting'];

const readAll = (signal: AbortSignal) =>
  allPages<Pool>(
    pool => pool.id,
    async (offset, limit) => {
      const answer = await call('listPools', { query: { offset, limit }, signal });
      return (answer as Extract<typeof answer, { result: unknown }>).result.pools;
    },
  );

export function PoolsView() {
  const [text, setText] = useState('');
  const { value, error, reload } = useLoaded('pools', readAll);
  const rows = (value ?? []).filter(pool =>
    `${pool.id} ${pool.group} ${pool.image}`.toLowerCase().includes(text.toLowerCase()),
  );
  return (
    <>
      <Title text="Pools" />
      <div class="filters">
        <Input label="Search" value={text} onInput={setText} type="search" />
        <Shown rows={rows} of={value} />
      </div>
      <Failure text={error} />
      {value === undefined ? (
        <Loading unless={error} />
      ) : (
        <Table<Pool>
          label="Pools"
          rows={rows}
          keyOf={pool => pool.id}
          empty={value.length === 0 ? 'There is no pool. “rookery pool create” makes one.' : 'No matching pools.'}
          columns={[
            { title: 'ID', cell: pool => pool.id },
            { title: 'Group', cell: pool => pool.group },
            { title: 'Status', cell: pool => <Status text={STATES[pool.status] ?? String(pool.status)} /> },
            { title: 'Ready', cell: pool => `${pool.ready_count} of ${pool.size}`, isNumber: true },
            { title: 'At most', cell: pool => pool.max_size, isNumber: true, isWide: true },
            { title: 'Image', cell: pool => pool.image, isMono: true, isWide: true },
            { title: 'Reason', cell: pool => pool.msg, isWide: true },
            {
              title: '',
              cell: pool =>
                may('write') ? (
                  <Action
                    key={pool.id}
                    text="Delete"
                    sure={`Delete the pool ${pool.id}?`}
                    work={async () => {
                      await call('deletePools', { query: { id: pool.id } });
                      reload();
                    }}
                  />
                ) : null,
            },
          ]}
        />
      )}
      <Note>A pool keeps pods ready on Kubernetes, for all tenants.</Note>
    </>
  );
}
