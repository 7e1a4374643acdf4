import type { FastifyRequest } from 'fastify';
import { addressPath } from '../../core/address.ts';
import type { Instance } from '../../core/instance.ts';
import { formatPort } from '../../core/instance.ts';
import { shownPolicy } from '../../core/restart-policy.ts';
import { withWarnings } from '../../http/answer.ts';

/** Builds the record of an instance for the host name of a request. */
export type RecordFor = (request: Pick<FastifyRequest, 'headers'>, instance: Instance) => Record<string, unknown>;

/** Builds the answer to a create and a restart: the id and the warnings. */
export function createdRecord({ id, sandbox }: Instance, warnings: readonly string[] = []): object {
  return withWarnings({ code: 200, instance_id: id }, [...warnings, ...sandbox.warnings]);
}

/** Builds the members about labels, end and pause. Members without a value are absent. */
function lifetimeRecord({ spec, labels, expiresAtMs, onExpiry, pausedAtMs }: Instance): Record<string, unknown> {
  return {
    ...(Object.keys(labels).length > 0 && { labels }),
    ...(expiresAtMs > 0 && { expires_at: new Date(expiresAtMs).toISOString() }),
    ...(spec.idleMs !== undefined && { idle_seconds: spec.idleMs / 1000 }),
    ...((expiresAtMs > 0 || spec.idleMs !== undefined) && { on_expiry: onExpiry }),
    ...(pausedAtMs > 0 && { paused_at: new Date(pausedAtMs).toISOString() }),
  };
}

/** Builds the member about the state of a durable agent. */
function durableRecord({ spec: now, savedState, restarts, wakes = 0, sleptAtMs }: Instance): Record<string, unknown> {
  const spec = now.next ?? now;
  const { version = 0, bytes = 0, savedAtMs = 0 } = savedState ?? {};
  return {
    schema: spec.durable?.schema,
    state_bytes: bytes,
    state_version: version,
    ...(savedAtMs > 0 && { saved_at: new Date(savedAtMs).toISOString() }),
    wakes: restarts + wakes,
    sleep_after_seconds: (spec.durable?.sleepMs ?? 0) / 1000,
    ...(spec.durable?.files && { files: { path: spec.durable.files.path, max_mb: spec.durable.files.maxMb } }),
    ...(savedState?.nextAlarmAtMs !== undefined && {
      next_alarm_at: new Date(savedState.nextAlarmAtMs).toISOString(),
    }),
    ...(sleptAtMs !== undefined && { slept_at: new Date(sleptAtMs).toISOString() }),
    ...(now.next !== undefined && { is_changed: true }),
  };
}

/** Builds the record of an instance for `GET /api/agent/{instanceId}` and the list. */
export function agentRecord(instance: Instance, address: string | null): Record<string, unknown> {
  const { sandbox } = instance;
  const spec = instance.spec.next ?? instance.spec;
  return {
    instance_id: instance.id,
    namespace: spec.namespace,
    name: spec.name,
    tenant: spec.tenant,
    status: instance.status,
    ...(instance.statusReason === '' ? {} : { status_reason: instance.statusReason }),
    sandbox_type: spec.sandboxType,
    sandbox_id: sandbox.sandboxId,
    node_id: sandbox.placement?.nodeName ?? instance.nodeId,
    node_ip: sandbox.nodeIp,
    sandbox_ip: sandbox.sandboxIp,
    runtime: spec.runtime,
    handler: spec.handler,
    codePath: spec.codePath,
    ...(spec.httpProfile !== undefined && { httpProfile: spec.httpProfile }),
    ...((spec.initializer !== '' || spec.preStop !== '' || spec.durable?.entries !== undefined) && {
      extendedHandler: { initializer: spec.initializer, pre_stop: spec.preStop, ...spec.durable?.entries },
    }),
    ...(spec.dependencies && { dependencies: spec.dependencies }),
    ...(spec.functionUrn === '' ? {} : { urn: spec.functionUrn }),
    ...(spec.template !== undefined && { template: spec.template }),
    rootfs: {
      type: spec.rootfs.type,
      imageurl: spec.rootfs.imageUrl,
      user: spec.rootfs.user,
      workspace: spec.workspace,
      mounts: spec.mounts.map(({ source, target, readonly }) => ({ source, target, readonly })),
    },
    ports: spec.ports.map(formatPort),
    port_mappings: sandbox.portMappings.map(mapping => ({
      protocol: mapping.protocol,
      container_port: mapping.containerPort,
      host_ip: mapping.hostIp,
      host_port: mapping.hostPort,
    })),
    ...(spec.expose && { expose: { ...spec.expose, address, path: addressPath(spec) } }),
    env_vars: spec.env,
    resources: { cpu: spec.cpuMillis, memory: spec.memoryMb },
    start_time: instance.startedAtMs === 0 ? null : new Date(instance.startedAtMs).toISOString(),
    restarts: instance.restarts,
    ...(spec.restartPolicy && { restart_policy: shownPolicy(spec.restartPolicy) }),
    ...(instance.restartAtMs > 0 && { restart_at: new Date(instance.restartAtMs).toISOString() }),
    ...lifetimeRecord(instance),
    ...(spec.durable && { durable: durableRecord(instance) }),
    isolation: sandbox.isolation,
    ...(sandbox.placement && {
      pool_id: sandbox.placement.poolId,
      ...(sandbox.placement.poolId === null ? { pool_reason: sandbox.placement.whyNoPool } : {}),
    }),
    ...(sandbox.warnings.length === 0 ? {} : { warnings: sandbox.warnings }),
    ...(instance.loadError === '' ? {} : { load_error: instance.loadError }),
  };
}
