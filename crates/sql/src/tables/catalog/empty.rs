//! What PostgreSQL has and we do not: whoever looks finds nothing, rather than an error.

use super::Listed;
use crate::tables::value::Kind;

const fn none(name: &'static str, columns: &'static [(&'static str, Kind)]) -> Listed {
    Listed { schema: "pg_catalog", name, columns, rows: |_| Vec::new() }
}

pub(crate) static PG_ATTRDEF: Listed =
    none("pg_attrdef", &[("oid", Kind::Oid), ("adrelid", Kind::Oid), ("adnum", Kind::Int2), ("adbin", Kind::Text)]);
pub(crate) static PG_AUTH_MEMBERS: Listed = none(
    "pg_auth_members",
    &[
        ("oid", Kind::Oid),
        ("roleid", Kind::Oid),
        ("member", Kind::Oid),
        ("grantor", Kind::Oid),
        ("admin_option", Kind::Bool),
    ],
);
pub(crate) static PG_AUTHID: Listed = none(
    "pg_authid",
    &[("oid", Kind::Oid), ("rolname", Kind::Name), ("rolsuper", Kind::Bool), ("rolcanlogin", Kind::Bool)],
);
pub(crate) static PG_CAST: Listed = none(
    "pg_cast",
    &[
        ("oid", Kind::Oid),
        ("castsource", Kind::Oid),
        ("casttarget", Kind::Oid),
        ("castfunc", Kind::Oid),
        ("castcontext", Kind::Char),
        ("castmethod", Kind::Char),
    ],
);
pub(crate) static PG_DEPEND: Listed = none(
    "pg_depend",
    &[
        ("classid", Kind::Oid),
        ("objid", Kind::Oid),
        ("objsubid", Kind::Int4),
        ("refclassid", Kind::Oid),
        ("refobjid", Kind::Oid),
        ("refobjsubid", Kind::Int4),
        ("deptype", Kind::Char),
    ],
);
pub(crate) static PG_ENUM: Listed = none(
    "pg_enum",
    &[("oid", Kind::Oid), ("enumtypid", Kind::Oid), ("enumsortorder", Kind::Float8), ("enumlabel", Kind::Name)],
);
pub(crate) static PG_EVENT_TRIGGER: Listed = none(
    "pg_event_trigger",
    &[
        ("oid", Kind::Oid),
        ("evtname", Kind::Name),
        ("evtevent", Kind::Name),
        ("evtowner", Kind::Oid),
        ("evtfoid", Kind::Oid),
        ("evtenabled", Kind::Char),
        ("evttags", Kind::TextArray),
    ],
);
pub(crate) static PG_EXTENSION: Listed = none(
    "pg_extension",
    &[
        ("oid", Kind::Oid),
        ("extname", Kind::Name),
        ("extowner", Kind::Oid),
        ("extnamespace", Kind::Oid),
        ("extrelocatable", Kind::Bool),
        ("extversion", Kind::Text),
    ],
);
pub(crate) static PG_FOREIGN_DATA_WRAPPER: Listed = none(
    "pg_foreign_data_wrapper",
    &[
        ("oid", Kind::Oid),
        ("fdwname", Kind::Name),
        ("fdwowner", Kind::Oid),
        ("fdwhandler", Kind::Oid),
        ("fdwvalidator", Kind::Oid),
        ("fdwacl", Kind::TextArray),
        ("fdwoptions", Kind::TextArray),
    ],
);
pub(crate) static PG_FOREIGN_SERVER: Listed = none(
    "pg_foreign_server",
    &[
        ("oid", Kind::Oid),
        ("srvname", Kind::Name),
        ("srvowner", Kind::Oid),
        ("srvfdw", Kind::Oid),
        ("srvtype", Kind::Text),
        ("srvversion", Kind::Text),
        ("srvacl", Kind::TextArray),
        ("srvoptions", Kind::TextArray),
    ],
);
pub(crate) static PG_FOREIGN_TABLE: Listed =
    none("pg_foreign_table", &[("ftrelid", Kind::Oid), ("ftserver", Kind::Oid), ("ftoptions", Kind::TextArray)]);
pub(crate) static PG_INHERITS: Listed = none(
    "pg_inherits",
    &[("inhrelid", Kind::Oid), ("inhparent", Kind::Oid), ("inhseqno", Kind::Int4), ("inhdetachpending", Kind::Bool)],
);
pub(crate) static PG_LANGUAGE: Listed = none(
    "pg_language",
    &[
        ("oid", Kind::Oid),
        ("lanname", Kind::Name),
        ("lanowner", Kind::Oid),
        ("lanispl", Kind::Bool),
        ("lanpltrusted", Kind::Bool),
        ("lanplcallfoid", Kind::Oid),
        ("tableoid", Kind::Oid),
    ],
);
pub(crate) static PG_MATVIEWS: Listed = none(
    "pg_matviews",
    &[
        ("schemaname", Kind::Name),
        ("matviewname", Kind::Name),
        ("matviewowner", Kind::Name),
        ("tablespace", Kind::Name),
        ("hasindexes", Kind::Bool),
        ("ispopulated", Kind::Bool),
        ("definition", Kind::Text),
    ],
);
pub(crate) static PG_OPERATOR: Listed = none(
    "pg_operator",
    &[
        ("oid", Kind::Oid),
        ("oprname", Kind::Name),
        ("oprkind", Kind::Char),
        ("oprnamespace", Kind::Oid),
        ("oprleft", Kind::Oid),
        ("oprright", Kind::Oid),
        ("oprresult", Kind::Oid),
        ("oprcode", Kind::Text),
    ],
);
pub(crate) static PG_PARTITIONED_TABLE: Listed = none(
    "pg_partitioned_table",
    &[("partrelid", Kind::Oid), ("partstrat", Kind::Char), ("partnatts", Kind::Int2), ("partdefid", Kind::Oid)],
);
pub(crate) static PG_POLICY: Listed = none(
    "pg_policy",
    &[
        ("oid", Kind::Oid),
        ("polname", Kind::Name),
        ("polrelid", Kind::Oid),
        ("polcmd", Kind::Char),
        ("polpermissive", Kind::Bool),
        ("polroles", Kind::OidArray),
        ("polqual", Kind::Text),
        ("polwithcheck", Kind::Text),
    ],
);
pub(crate) static PG_PROC: Listed = none(
    "pg_proc",
    &[
        ("oid", Kind::Oid),
        ("proname", Kind::Name),
        ("pronamespace", Kind::Oid),
        ("proowner", Kind::Oid),
        ("prolang", Kind::Oid),
        ("prokind", Kind::Char),
        ("provolatile", Kind::Char),
        ("proparallel", Kind::Char),
        ("prosecdef", Kind::Bool),
        ("proretset", Kind::Bool),
        ("prorettype", Kind::Oid),
        ("proargtypes", Kind::OidArray),
        ("proargnames", Kind::TextArray),
        ("prosrc", Kind::Text),
        ("proacl", Kind::TextArray),
        ("pronargs", Kind::Int2),
    ],
);
pub(crate) static PG_PUBLICATION: Listed = none(
    "pg_publication",
    &[
        ("oid", Kind::Oid),
        ("pubname", Kind::Name),
        ("pubowner", Kind::Oid),
        ("puballtables", Kind::Bool),
        ("pubinsert", Kind::Bool),
        ("pubupdate", Kind::Bool),
        ("pubdelete", Kind::Bool),
        ("pubtruncate", Kind::Bool),
        ("pubviaroot", Kind::Bool),
    ],
);
pub(crate) static PG_PUBLICATION_NAMESPACE: Listed =
    none("pg_publication_namespace", &[("oid", Kind::Oid), ("pnpubid", Kind::Oid), ("pnnspid", Kind::Oid)]);
pub(crate) static PG_PUBLICATION_REL: Listed = none(
    "pg_publication_rel",
    &[
        ("oid", Kind::Oid),
        ("prpubid", Kind::Oid),
        ("prrelid", Kind::Oid),
        ("prqual", Kind::Text),
        ("prattrs", Kind::Int2Array),
    ],
);
pub(crate) static PG_RANGE: Listed = none(
    "pg_range",
    &[
        ("rngtypid", Kind::Oid),
        ("rngsubtype", Kind::Oid),
        ("rngmultitypid", Kind::Oid),
        ("rngcollation", Kind::Oid),
        ("rngsubopc", Kind::Oid),
        ("rngcanonical", Kind::Text),
        ("rngsubdiff", Kind::Text),
    ],
);
pub(crate) static PG_REWRITE: Listed = none(
    "pg_rewrite",
    &[
        ("oid", Kind::Oid),
        ("rulename", Kind::Name),
        ("ev_class", Kind::Oid),
        ("ev_type", Kind::Char),
        ("ev_enabled", Kind::Char),
        ("is_instead", Kind::Bool),
        ("tableoid", Kind::Oid),
    ],
);
pub(crate) static PG_SEQUENCE: Listed = none(
    "pg_sequence",
    &[
        ("seqrelid", Kind::Oid),
        ("seqtypid", Kind::Oid),
        ("seqstart", Kind::Int8),
        ("seqincrement", Kind::Int8),
        ("seqmax", Kind::Int8),
        ("seqmin", Kind::Int8),
        ("seqcache", Kind::Int8),
        ("seqcycle", Kind::Bool),
    ],
);
pub(crate) static PG_SHDESCRIPTION: Listed =
    none("pg_shdescription", &[("objoid", Kind::Oid), ("classoid", Kind::Oid), ("description", Kind::Text)]);
pub(crate) static PG_STAT_USER_TABLES: Listed = none(
    "pg_stat_user_tables",
    &[("relid", Kind::Oid), ("schemaname", Kind::Name), ("relname", Kind::Name), ("n_live_tup", Kind::Int8)],
);
pub(crate) static PG_STATISTIC_EXT: Listed = none(
    "pg_statistic_ext",
    &[
        ("oid", Kind::Oid),
        ("stxrelid", Kind::Oid),
        ("stxname", Kind::Name),
        ("stxnamespace", Kind::Oid),
        ("stxowner", Kind::Oid),
        ("stxstattarget", Kind::Int4),
        ("stxkeys", Kind::Int2Array),
        ("stxkind", Kind::TextArray),
    ],
);
pub(crate) static PG_SUBSCRIPTION: Listed = none(
    "pg_subscription",
    &[
        ("oid", Kind::Oid),
        ("subdbid", Kind::Oid),
        ("subname", Kind::Name),
        ("subowner", Kind::Oid),
        ("subenabled", Kind::Bool),
        ("subpublications", Kind::TextArray),
    ],
);
pub(crate) static PG_TABLESPACE: Listed = none(
    "pg_tablespace",
    &[
        ("oid", Kind::Oid),
        ("spcname", Kind::Name),
        ("spcowner", Kind::Oid),
        ("spcacl", Kind::TextArray),
        ("spcoptions", Kind::TextArray),
    ],
);
pub(crate) static PG_TRIGGER: Listed = none(
    "pg_trigger",
    &[
        ("oid", Kind::Oid),
        ("tgrelid", Kind::Oid),
        ("tgparentid", Kind::Oid),
        ("tgname", Kind::Name),
        ("tgfoid", Kind::Oid),
        ("tgtype", Kind::Int2),
        ("tgenabled", Kind::Char),
        ("tgisinternal", Kind::Bool),
        ("tgconstraint", Kind::Oid),
        ("tableoid", Kind::Oid),
    ],
);
pub(crate) static PG_TS_CONFIG: Listed = none(
    "pg_ts_config",
    &[("oid", Kind::Oid), ("cfgname", Kind::Name), ("cfgnamespace", Kind::Oid), ("cfgowner", Kind::Oid)],
);
pub(crate) static PG_USER_MAPPINGS: Listed = none(
    "pg_user_mappings",
    &[
        ("umid", Kind::Oid),
        ("srvid", Kind::Oid),
        ("srvname", Kind::Name),
        ("umuser", Kind::Oid),
        ("usename", Kind::Name),
        ("umoptions", Kind::TextArray),
    ],
);
pub(crate) static PG_AMOP: Listed = none(
    "pg_amop",
    &[
        ("oid", Kind::Oid),
        ("amopfamily", Kind::Oid),
        ("amoplefttype", Kind::Oid),
        ("amoprighttype", Kind::Oid),
        ("amopstrategy", Kind::Int2),
        ("amoppurpose", Kind::Char),
        ("amopopr", Kind::Oid),
        ("amopmethod", Kind::Oid),
        ("amopsortfamily", Kind::Oid),
    ],
);
pub(crate) static PG_AMPROC: Listed = none(
    "pg_amproc",
    &[
        ("oid", Kind::Oid),
        ("amprocfamily", Kind::Oid),
        ("amproclefttype", Kind::Oid),
        ("amprocrighttype", Kind::Oid),
        ("amprocnum", Kind::Int2),
        ("amproc", Kind::Oid),
    ],
);
pub(crate) static PG_CONVERSION: Listed = none(
    "pg_conversion",
    &[
        ("oid", Kind::Oid),
        ("conname", Kind::Name),
        ("connamespace", Kind::Oid),
        ("conowner", Kind::Oid),
        ("conforencoding", Kind::Int4),
        ("contoencoding", Kind::Int4),
        ("conproc", Kind::Oid),
        ("condefault", Kind::Bool),
    ],
);
pub(crate) static PG_DB_ROLE_SETTING: Listed =
    none("pg_db_role_setting", &[("setdatabase", Kind::Oid), ("setrole", Kind::Oid), ("setconfig", Kind::TextArray)]);
pub(crate) static PG_DEFAULT_ACL: Listed = none(
    "pg_default_acl",
    &[
        ("oid", Kind::Oid),
        ("defaclrole", Kind::Oid),
        ("defaclnamespace", Kind::Oid),
        ("defaclobjtype", Kind::Char),
        ("defaclacl", Kind::TextArray),
    ],
);
pub(crate) static PG_LARGEOBJECT_METADATA: Listed =
    none("pg_largeobject_metadata", &[("oid", Kind::Oid), ("lomowner", Kind::Oid), ("lomacl", Kind::TextArray)]);
pub(crate) static PG_OPCLASS: Listed = none(
    "pg_opclass",
    &[
        ("oid", Kind::Oid),
        ("tableoid", Kind::Oid),
        ("opcmethod", Kind::Oid),
        ("opcname", Kind::Name),
        ("opcnamespace", Kind::Oid),
        ("opcowner", Kind::Oid),
        ("opcfamily", Kind::Oid),
        ("opcintype", Kind::Oid),
        ("opcdefault", Kind::Bool),
        ("opckeytype", Kind::Oid),
    ],
);
pub(crate) static PG_OPFAMILY: Listed = none(
    "pg_opfamily",
    &[
        ("oid", Kind::Oid),
        ("tableoid", Kind::Oid),
        ("opfmethod", Kind::Oid),
        ("opfname", Kind::Name),
        ("opfnamespace", Kind::Oid),
        ("opfowner", Kind::Oid),
    ],
);
pub(crate) static PG_TS_DICT: Listed = none(
    "pg_ts_dict",
    &[
        ("oid", Kind::Oid),
        ("dictname", Kind::Name),
        ("dictnamespace", Kind::Oid),
        ("dictowner", Kind::Oid),
        ("dicttemplate", Kind::Oid),
        ("dictinitoption", Kind::Text),
    ],
);
pub(crate) static PG_TS_PARSER: Listed =
    none("pg_ts_parser", &[("oid", Kind::Oid), ("prsname", Kind::Name), ("prsnamespace", Kind::Oid)]);
pub(crate) static PG_TS_TEMPLATE: Listed =
    none("pg_ts_template", &[("oid", Kind::Oid), ("tmplname", Kind::Name), ("tmplnamespace", Kind::Oid)]);
pub(crate) static PG_STAT_ACTIVITY: Listed = none(
    "pg_stat_activity",
    &[
        ("datid", Kind::Oid),
        ("datname", Kind::Name),
        ("pid", Kind::Int4),
        ("usesysid", Kind::Oid),
        ("usename", Kind::Name),
        ("application_name", Kind::Text),
        ("client_addr", Kind::Text),
        ("backend_start", Kind::Timestamptz),
        ("state", Kind::Text),
        ("query", Kind::Text),
    ],
);
