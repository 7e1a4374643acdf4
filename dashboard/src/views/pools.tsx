import { type AnswerOf, call, may } from '../api.ts';
import { useLoaded } from '../live.ts';
import { Action, Failure, Loading, Note, Status, Table, Title } from '../parts.tsx';

type Pool = Extract<AnswerOf<'listPools'>, { result: unknown }>['result']['pools'][number];

const STATES = ['new', 'creating', 'update requested', 'updating', 'running', 'failed', 'deleting'];

export function PoolsView() {
  const { value, error, reload } = useLoaded('pools', async signal => {
    const answer = await call('listPools', { query: { limit: 1000 }, signal });
    return (answer as Extract<typeof answer, { result: unknown }>).result.pools;
  });
  return (
    <>
      <Title text="Pools" />
      <Failure text={error} />
      {value === undefined ? (
        <Loading unless={error} />
      ) : (
        <Table<Pool>
          label="Pools"
          rows={value}
          keyOf={pool => pool.id}
          empty="There is no pool."
          columns={[
            { title: 'Id', cell: pool => pool.id },
            { title: 'Group', cell: pool => pool.group },
            { title: 'Status', cell: pool => <Status text={STATES[pool.status] ?? String(pool.status)} /> },
            { title: 'Ready', cell: pool => `${pool.ready_count} of ${pool.size}`, isNumber: true },
            { title: 'At most', cell: pool => pool.max_size, isNumber: true },
            { title: 'Image', cell: pool => pool.image, isMono: true },
            { title: 'Why', cell: pool => pool.msg, isWide: true },
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
      <Note>Pools keep pods warm on Kubernetes. They belong to all tenants.</Note>
    </>
  );
}
