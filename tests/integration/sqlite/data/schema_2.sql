PRAGMA application_id = 1514227020;
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE audit (
  namespace_id TEXT NOT NULL, entity_id TEXT NOT NULL, event_id TEXT NOT NULL,
  timestamp TEXT NOT NULL, action TEXT NOT NULL, principal TEXT, resource TEXT,
  details TEXT NOT NULL,
  PRIMARY KEY (namespace_id, entity_id, event_id)) WITHOUT ROWID;
INSERT INTO "audit" VALUES('O4ICvRY3xdE','$RESOURCE:gpt-4','019b76daa800-002bad-ed9162','2026-01-01T00:00:00Z','limits_set','ops','gpt-4','{"limits":[{"name":"rpm","capacity":100,"refill_amount":100,"refill_period_seconds":60}],"previous":null}');
INSERT INTO "audit" VALUES('O4ICvRY3xdE','$SYSTEM','019b76daa800-002bac-3eef36','2026-01-01T00:00:00Z','limits_set',NULL,NULL,'{"limits":[{"name":"rpm","capacity":100,"refill_amount":100,"refill_period_seconds":60}],"previous":null}');
INSERT INTO "audit" VALUES('O4ICvRY3xdE','project','019b76daa800-002bae-ecb903','2026-01-01T00:00:00Z','entity_created',NULL,NULL,'{"name":"Project","parent_id":null,"cascade":false,"metadata":{}}');
INSERT INTO "audit" VALUES('O4ICvRY3xdE','user-1','019b76daa800-002baf-2c1134','2026-01-01T00:00:00Z','entity_created',NULL,NULL,'{"name":"Ann","parent_id":"project","cascade":true,"metadata":{"team":"red"}}');
INSERT INTO "audit" VALUES('O4ICvRY3xdE','user-1','019b76daa800-002bb0-3af18d','2026-01-01T00:00:00Z','limits_set',NULL,'gpt-4','{"limits":[{"name":"rpm","capacity":100,"refill_amount":100,"refill_period_seconds":60}],"previous":null}');
INSERT INTO "audit" VALUES('_','$NAMESPACE:default','019b76daa800-002bab-b7cf28','2026-01-01T00:00:00Z','namespace_registered',NULL,NULL,'{"namespace_id":"O4ICvRY3xdE"}');
CREATE TABLE bucket (
  namespace_id TEXT NOT NULL, entity_id TEXT NOT NULL, resource TEXT NOT NULL,
  state TEXT NOT NULL, expires_ms INTEGER,
  PRIMARY KEY (namespace_id, entity_id, resource)) WITHOUT ROWID;
INSERT INTO "bucket" VALUES('O4ICvRY3xdE','project','gpt-4','[1,{"rpm":[-315653901000,[100000,100000,60000],4000,3000]},3,1767229620000,490897,2,1,2]',1767229620000);
INSERT INTO "bucket" VALUES('O4ICvRY3xdE','stranger','gpt-5','[1,{"rpm":[-315647903000,[100000,100000,60000],3000,0]},3,1767226020000,490896,1,0,1]',1767226020000);
INSERT INTO "bucket" VALUES('O4ICvRY3xdE','user-1','gpt-4','[1,{"rpm":[-315653901000,[100000,100000,60000],4000,3000]},3,null,490897,2,1,2]',NULL);
CREATE TABLE clock (
  machine TEXT PRIMARY KEY,
  settled_ns INTEGER NOT NULL, offset_ns INTEGER NOT NULL, since_ns INTEGER NOT NULL,
  start_ns INTEGER NOT NULL, divisor INTEGER NOT NULL,
  next_since_ns INTEGER, next_offset_ns INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE config (
  namespace_id TEXT NOT NULL, entity_id TEXT NOT NULL, resource TEXT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (namespace_id, entity_id, resource)) WITHOUT ROWID;
INSERT INTO "config" VALUES('O4ICvRY3xdE','','','{"limits":[["rpm",100,100,60]],"on_unavailable":null}');
INSERT INTO "config" VALUES('O4ICvRY3xdE','','gpt-4','{"limits":[["rpm",100,100,60]],"on_unavailable":null}');
INSERT INTO "config" VALUES('O4ICvRY3xdE','user-1','gpt-4','{"limits":[["rpm",100,100,60]],"on_unavailable":null}');
CREATE TABLE config_version (
  namespace_id TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "config_version" VALUES('O4ICvRY3xdE',3);
CREATE TABLE entity (
  namespace_id TEXT NOT NULL, entity_id TEXT NOT NULL, name TEXT, parent_id TEXT,
  cascade INTEGER NOT NULL, metadata TEXT NOT NULL, created_at TEXT NOT NULL,
  PRIMARY KEY (namespace_id, entity_id)) WITHOUT ROWID;
INSERT INTO "entity" VALUES('O4ICvRY3xdE','project','Project',NULL,0,'{}','2026-01-01T00:00:00Z');
INSERT INTO "entity" VALUES('O4ICvRY3xdE','user-1','Ann','project',1,'{"team":"red"}','2026-01-01T00:00:00Z');
CREATE TABLE namespace (
  namespace_id TEXT PRIMARY KEY, name TEXT NOT NULL, status TEXT NOT NULL,
  created_at TEXT NOT NULL, deleted_at TEXT) WITHOUT ROWID;
INSERT INTO "namespace" VALUES('O4ICvRY3xdE','default','active','2026-01-01T00:00:00Z',NULL);
CREATE TABLE record (
  namespace_id TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (namespace_id, key)) WITHOUT ROWID;
CREATE TABLE usage (
  namespace_id TEXT NOT NULL, entity_id TEXT NOT NULL, resource TEXT NOT NULL,
  hour INTEGER NOT NULL, counters TEXT NOT NULL, events INTEGER NOT NULL,
  PRIMARY KEY (namespace_id, entity_id, resource, hour)) WITHOUT ROWID;
INSERT INTO "usage" VALUES('O4ICvRY3xdE','project','gpt-4',490896,'{"rpm":3}',1);
INSERT INTO "usage" VALUES('O4ICvRY3xdE','user-1','gpt-4',490896,'{"rpm":3}',1);
CREATE INDEX bucket_by_resource ON bucket (namespace_id, resource, entity_id);
CREATE INDEX bucket_by_expiry ON bucket (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX usage_by_resource ON usage (namespace_id, resource, hour);
CREATE INDEX usage_by_hour ON usage (hour);
CREATE INDEX config_by_resource ON config (namespace_id, resource, entity_id);
CREATE INDEX entity_by_parent ON entity (namespace_id, parent_id, entity_id);
CREATE UNIQUE INDEX namespace_active ON namespace (name) WHERE status = 'active';
CREATE INDEX audit_by_time ON audit (event_id);
COMMIT;
