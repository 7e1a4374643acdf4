import { useEffect } from 'preact/hooks';
import { call } from '../api.ts';
import { sample, useLoaded } from '../live.ts';
import { ago, Failure, Fields, Loading, Note, Table, Title } from '../parts.tsx';

export function NodesView() {
  const { value, error, reload } = useLoaded('nodes', signal => call('getCluster', { signal }));
  const at = sample.value?.at ?? null;
  // Reads the cluster again when the newest point changes.
  useEffect(() => {
    if (at !== null) reload();
  }, [at]);
  return (
    <>
      <Title text="Nodes" />
      <Failure text={error} />
      {value === undefined ? (
        <Loading unless={error} />
      ) : (
        <>
          <Fields
            rows={[
              ['Answered by', value.node_id],
              ['Storage', value.storage === 'sqlite' ? 'SQLite, for a single replica' : 'PostgreSQL'],
              ['Member', value.is_member ? 'yes' : 'no: the cluster removed this replica'],
              ['Shards', `${value.shards.owned} of ${value.shards.total} are owned`],
              ['Delay of the change feed', `${value.feed_behind_ms} ms`],
              ['Dispatches jobs', value.jobs ?? 'no replica at the moment'],
              ['Cleans up', value.sweeper ?? 'no replica at the moment'],
            ]}
          />
          <Table
            label="Nodes"
            rows={value.nodes}
            keyOf={node => node.id}
            empty="No replica is alive."
            columns={[
              { title: 'Node', cell: node => node.id, isMono: true },
              { title: 'Address', cell: node => node.address || '–', isMono: true, isWide: true },
              { title: 'Roles', cell: node => (node.roles.length === 0 ? 'leaving' : node.roles.join(', ')) },
              { title: 'Version', cell: node => node.version },
              { title: 'Shards', cell: node => node.shards, isNumber: true },
              { title: 'Leases', cell: node => node.leases.join(', ') || '–', isWide: true },
              { title: 'Age', cell: node => ago(node.joined_at), isNumber: true },
            ]}
          />
          <Note>The overview shows the numbers of all replicas, or of one.</Note>
        </>
      )}
    </>
  );
}
